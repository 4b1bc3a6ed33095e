#include "lamina/data/tasks/copy.h"

#include "lamina/base/error.h"

namespace lamina::data {

void Copy::check() const { LAMINA_CHECK(symbols >= 2, "copy: ", symbols, " symbols; expected at least 2"); }
int64_t Copy::vocab_size() const { return kFirstSymbol + symbols; }
int64_t Copy::answers() const { return symbols; }
int64_t Copy::shortest() const { return 2; }

Example Copy::make(Dice& dice, int64_t length) const {
  Example example;
  const int64_t count = length / 2;
  for (int64_t i = 0; i < count; ++i) example.add(kFirstSymbol + dice.below(symbols));
  example.add(kAgain);
  for (int64_t i = 0; i < count; ++i) example.ask(example.tokens[static_cast<size_t>(i)]);
  example.fill(kBlank, length + 1);
  return example;
}

std::string Copy::spell(int64_t token) const {
  return token == kBlank ? "." : token == kAgain ? "|" : symbol_name(token - kFirstSymbol);
}

}  // namespace lamina::data
