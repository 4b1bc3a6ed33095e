#include "lamina/data/tasks/passkey.h"

#include "lamina/base/error.h"

namespace lamina::data {
namespace {

constexpr int64_t kMark = 0;
constexpr int64_t kFirstDigit = 1;
constexpr int64_t kDigits = 10;
constexpr int64_t kFirstWord = kFirstDigit + kDigits;

}  // namespace

void Passkey::check() const {
  LAMINA_CHECK(digits >= 1 && words >= 1, "passkey: ", digits, " digits among ", words,
               " words; expected at least 1 of each");
}
int64_t Passkey::vocab_size() const { return kFirstWord + words; }
int64_t Passkey::answers() const { return kDigits; }
int64_t Passkey::shortest() const { return 2 * (1 + digits) - 1; }

Example Passkey::make(Dice& dice, int64_t length) const {
  const int64_t before = dice.below(room(length) + 1);
  return make_at(dice, length, before);
}

Example Passkey::make_at(Dice& dice, int64_t length, int64_t before) const {
  const int64_t all = room(length);
  LAMINA_CHECK(before >= 0 && before <= all, "passkey: ", before, " words before the number, the row has ", all);
  Example example;
  const auto add_words = [&](int64_t count) {
    for (int64_t i = 0; i < count; ++i) example.add(kFirstWord + dice.below(words));
  };
  std::vector<int64_t> number;
  for (int64_t i = 0; i < digits; ++i) number.push_back(kFirstDigit + dice.below(kDigits));
  add_words(before);
  example.add(kMark);
  for (const int64_t digit : number) example.add(digit);
  add_words(all - before);
  example.add(kMark);
  for (const int64_t digit : number) example.ask(digit);
  return example;
}

std::string Passkey::spell(int64_t token) const {
  if (token == kMark) return "?";
  return token < kFirstWord ? std::to_string(token - kFirstDigit) : symbol_name(token - kFirstWord);
}

}  // namespace lamina::data
