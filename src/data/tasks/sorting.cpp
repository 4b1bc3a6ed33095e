#include "lamina/data/tasks/sorting.h"

#include <algorithm>

#include "lamina/base/error.h"

namespace lamina::data {

void Sorting::check() const { LAMINA_CHECK(symbols >= 2, "sorting: ", symbols, " symbols; expected at least 2"); }
int64_t Sorting::vocab_size() const { return kFirstSymbol + symbols; }
int64_t Sorting::answers() const { return symbols; }
int64_t Sorting::shortest() const { return 2; }

Example Sorting::make(Dice& dice, int64_t length) const {
  Example example;
  for (int64_t i = 0; i < length / 2; ++i) example.add(kFirstSymbol + dice.below(symbols));
  std::vector<int64_t> sorted = example.tokens;
  std::sort(sorted.begin(), sorted.end());
  example.add(kAgain);
  for (const int64_t symbol : sorted) example.ask(symbol);
  example.fill(kBlank, length + 1);
  return example;
}

std::string Sorting::spell(int64_t token) const {
  return token == kBlank ? "." : token == kAgain ? "|" : std::to_string(token - kFirstSymbol);
}

}  // namespace lamina::data
