#pragma once

#include <string>

#include "lamina/text/grammar/char_dfa.h"

namespace lamina::text::grammar {

/// A decimal number, exactly as it is written in a schema.
struct Decimal {
  bool negative = false;
  std::string whole = "0";  ///< digits without leading zeros
  std::string fraction;     ///< digits without trailing zeros

  bool is_zero() const { return whole == "0" && fraction.empty(); }
};
/// Parses a JSON number, with or without an exponent. More than a few hundred digits are an Error.
Decimal parse_decimal(const std::string& number, const std::string& name);
/// Returns a negative number, 0 or a positive number if a is less than, equal to or greater than b.
int compare(const Decimal& a, const Decimal& b);
/// Whether value / divisor is an integer. A divisor with too many digits is an Error.
bool is_multiple(const Decimal& value, const Decimal& divisor, const std::string& name);

/// Numbers in plain decimal notation, without an exponent.
CharDfa plain_numbers(bool integers, DfaWork& work);
/// Plain numbers on one side of a bound.
CharDfa numbers_within(const Decimal& bound, bool upper, bool exclusive, DfaWork& work);
/// Plain numbers that are a multiple of `divisor`.
CharDfa multiples_of(const Decimal& divisor, DfaWork& work);

}  // namespace lamina::text::grammar
