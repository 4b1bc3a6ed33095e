#include "lamina/data/tasks/selective_copy.h"

#include "lamina/base/error.h"

namespace lamina::data {

void SelectiveCopy::check() const {
  LAMINA_CHECK(symbols >= 2 && items >= 1, "selective_copy: ", items, " items of ", symbols,
               " symbols; expected at least 1 of 2");
}
int64_t SelectiveCopy::vocab_size() const { return kFirstSymbol + symbols; }
int64_t SelectiveCopy::answers() const { return symbols; }
int64_t SelectiveCopy::shortest() const { return 2 * items; }

Example SelectiveCopy::make(Dice& dice, int64_t length) const {
  Example example;
  std::vector<int64_t> held;
  for (const bool here : dice.places(items, length - items)) {
    if (here) held.push_back(kFirstSymbol + dice.below(symbols));
    example.add(here ? held.back() : kBlank);
  }
  example.add(kAgain);
  for (const int64_t symbol : held) example.ask(symbol);
  return example;
}

std::string SelectiveCopy::spell(int64_t token) const {
  return token == kBlank ? "." : token == kAgain ? "|" : symbol_name(token - kFirstSymbol);
}

}  // namespace lamina::data
