#include "lamina/data/tasks/modular.h"

#include <algorithm>

#include "lamina/base/error.h"

namespace lamina::data {
namespace {

/// Number of tokens in an expression: the numbers, the signs between them, the equals sign, and the result.
constexpr int64_t tokens_of(int64_t terms) { return 2 * terms + 1; }
constexpr int64_t kFewestTerms = 2;

// Token ids of the signs, relative to the end of the digits.
constexpr int64_t kPlus = 0;
constexpr int64_t kMinus = 1;
constexpr int64_t kEquals = 2;
constexpr int64_t kEmpty = 3;
constexpr int64_t kSigns = 4;

}  // namespace

void Modular::check() const {
  LAMINA_CHECK(modulus >= 2 && expressions >= 1, "modular: ", expressions, " expressions modulo ", modulus,
               "; expected at least 1 modulo 2");
}
int64_t Modular::vocab_size() const { return modulus + kSigns; }
int64_t Modular::answers() const { return modulus; }
int64_t Modular::shortest() const { return tokens_of(kFewestTerms) * expressions - 1; }

Example Modular::make(Dice& dice, int64_t length) const {
  Example example;
  const int64_t most = ((length + 1) / expressions - 1) / 2;
  while (example.size() + tokens_of(kFewestTerms) <= length + 1) {
    const int64_t fit = std::min(most, (length - example.size()) / 2);
    const int64_t terms = kFewestTerms + dice.below(fit - kFewestTerms + 1);
    int64_t result = dice.below(modulus);
    example.add(result);
    for (int64_t i = 1; i < terms; ++i) {
      const bool minus = dice.below(2) == 1;
      const int64_t digit = dice.below(modulus);
      example.add(modulus + (minus ? kMinus : kPlus));
      example.add(digit);
      result = (result + (minus ? modulus - digit : digit)) % modulus;
    }
    example.add(modulus + kEquals);
    example.ask(result);
  }
  example.fill(modulus + kEmpty, length + 1);
  return example;
}

std::string Modular::spell(int64_t token) const {
  return token < modulus ? std::to_string(token) : std::string(1, "+-=."[token - modulus]);
}

}  // namespace lamina::data
