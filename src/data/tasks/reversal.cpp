#include "lamina/data/tasks/reversal.h"

#include "lamina/base/error.h"

namespace lamina::data {

void Reversal::check() const { LAMINA_CHECK(symbols >= 2, "reversal: ", symbols, " symbols; expected at least 2"); }
int64_t Reversal::vocab_size() const { return kFirstSymbol + symbols; }
int64_t Reversal::answers() const { return symbols; }
int64_t Reversal::shortest() const { return 2; }

Example Reversal::make(Dice& dice, int64_t length) const {
  Example example;
  const int64_t count = length / 2;
  for (int64_t i = 0; i < count; ++i) example.add(kFirstSymbol + dice.below(symbols));
  example.add(kAgain);
  for (int64_t i = count - 1; i >= 0; --i) example.ask(example.tokens[static_cast<size_t>(i)]);
  example.fill(kBlank, length + 1);
  return example;
}

std::string Reversal::spell(int64_t token) const {
  return token == kBlank ? "." : token == kAgain ? "|" : symbol_name(token - kFirstSymbol);
}

}  // namespace lamina::data
