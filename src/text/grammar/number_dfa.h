#pragma once

#include <string>

#include "lamina/text/grammar/char_dfa.h"

namespace lamina::text::grammar {

/// A decimal number, exactly as a schema spells it.
struct Decimal {
  bool negative = false;
  std::string whole = "0";  ///< digits without leading zeros
  std::string fraction;     ///< digits without trailing zeros

  bool is_zero() const { return whole == "0" && fraction.empty(); }
};
/// Parses a JSON number, also one with an exponent. More than some hundred digits are an Error.
Decimal parse_decimal(const std::string& number, const std::string& name);
/// Less than, equal to or greater than 0 as a is to b.
int compare(const Decimal& a, const Decimal& b);
/// Whether value / divisor is a whole number. A divisor with too many digits is an Error.
bool is_multiple(const Decimal& value, const Decimal& divisor, const std::string& name);

/// Plain decimal notation, without an exponent.
CharDfa plain_numbers(bool integers, DfaWork& work);
/// Plain numbers on one side of a bound.
CharDfa numbers_within(const Decimal& bound, bool upper, bool exclusive, DfaWork& work);
/// Plain numbers that are a multiple of `divisor`.
CharDfa multiples_of(const Decimal& divisor, DfaWork& work);

}  // namespace lamina::text::grammar
