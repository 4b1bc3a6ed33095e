#include "lamina/data/tasks/mqar.h"

#include "lamina/base/error.h"

namespace lamina::data {
namespace {

constexpr int64_t kFiller = 0;
constexpr int64_t kFirstKey = 1;

}  // namespace

void Mqar::check() const {
  LAMINA_CHECK(values >= 2 && pairs >= 1 && questions >= 1 && keys >= pairs, "mqar: ", pairs, " pairs and ", questions,
               " questions of ", keys, " keys and ", values,
               " values; expected at least one pair and question, a key for each pair and 2 values");
}
int64_t Mqar::vocab_size() const { return kFirstKey + keys + values; }
int64_t Mqar::answers() const { return values; }
int64_t Mqar::shortest() const { return 2 * (pairs + questions) - 1; }

Example Mqar::make(Dice& dice, int64_t length) const {
  Example example;
  const std::vector<int64_t> key = dice.different(pairs, keys);
  std::vector<int64_t> value;
  for (const int64_t k : key) {
    value.push_back(kFirstKey + keys + dice.below(values));
    example.add(kFirstKey + k);
    example.add(value.back());
  }
  std::vector<int64_t> order;
  while (static_cast<int64_t>(order.size()) < questions) {
    const std::vector<int64_t> round = dice.different(pairs, pairs);
    order.insert(order.end(), round.begin(), round.end());
  }
  size_t asked = 0;
  for (const bool here : dice.places(questions, length + 1 - 2 * pairs - questions)) {
    if (!here) {
      example.add(kFiller);
      continue;
    }
    const auto pair = static_cast<size_t>(order[asked++]);
    example.add(kFirstKey + key[pair]);
    example.ask(value[pair]);
  }
  return example;
}

std::string Mqar::spell(int64_t token) const {
  if (token == kFiller) return ".";
  return token < kFirstKey + keys ? str("k", token - kFirstKey) : str("v", token - kFirstKey - keys);
}

}  // namespace lamina::data
