// Filters of numbers: int, float, abs, round.
#include <charconv>
#include <cmath>
#include <cstdio>

#include "lamina/base/error.h"
#include "lamina/text/template/arguments.h"
#include "lamina/text/template/filters.h"
#include "lamina/text/template/interpreter.h"
#include "lamina/text/template/unicode.h"

namespace lamina::text::jinja {
namespace {

/// Digits without surrounding space, a leading +, or underscores between digits. Empty if underscores are misplaced.
std::optional<std::string> plain_digits(std::string_view text) {
  text = strip(text, Side::both);
  if (!text.empty() && text[0] == '+' && text.substr(1, 1) != "-") text.remove_prefix(1);
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto digit = [&](size_t at) {
      return at < text.size() && std::isxdigit(static_cast<unsigned char>(text[at])) != 0;
    };
    if (text[i] != '_') {
      out += text[i];
    } else if (i == 0 || !digit(i - 1) || !digit(i + 1)) {
      return {};
    }
  }
  return out;
}

template <class Number, class... Options>
std::optional<Number> parse_whole(const std::string& digits, Options... options) {
  Number value{};
  const char* end = digits.data() + digits.size();
  const auto result = std::from_chars(digits.data(), end, value, options...);
  if (digits.empty() || result.ec != std::errc() || result.ptr != end) return {};
  return value;
}

std::optional<double> real_in(const Value& value) {
  if (value.is_undefined()) value.fail_undefined();
  if (value.is_number()) return value.real();
  if (!value.is_string()) return {};
  const auto digits = plain_digits(value.text());
  return digits ? parse_whole<double>(*digits) : std::nullopt;
}

std::optional<int64_t> truncated(double value) {
  if (!(value > -9.2e18 && value < 9.2e18)) return {};
  return static_cast<int64_t>(value);
}

Value int_filter(Interpreter& run, const Value& input, const Arguments& given) {
  const BoundArguments arguments("int", given, {"default", "base"});
  const int64_t base = arguments.integer_or(1, 10);
  if (base < 2 || base > 36) throw Failure(str("int: base is ", base, "; expected 2 to 36"));
  if (input.is_undefined()) input.fail_undefined();
  run.charge(input.size());
  if (input.is_integer() || input.is_bool()) return input.integer();
  if (input.is_string()) {
    auto digits = plain_digits(input.text());
    const char* prefix = base == 16 ? "0x" : base == 8 ? "0o" : base == 2 ? "0b" : nullptr;
    if (digits && prefix != nullptr && to_lower(digits->substr(0, 2)) == prefix) digits = digits->substr(2);
    if (const auto value = digits ? parse_whole<int64_t>(*digits, static_cast<int>(base)) : std::nullopt) return *value;
  }
  const auto real = real_in(input);
  const auto whole = real ? truncated(*real) : std::nullopt;
  return whole ? Value(*whole) : arguments.value_or(0, 0);
}

Value float_filter(Interpreter& run, const Value& input, const Arguments& given) {
  const BoundArguments arguments("float", given, {"default"});
  run.charge(input.size());
  const auto real = real_in(input);
  return real ? Value(*real) : arguments.value_or(0, 0.0);
}

const Value& checked_number(const char* filter, const Value& value) {
  if (value.is_undefined()) value.fail_undefined();
  if (!value.is_number()) throw Failure(str(filter, ": expected a number, got ", value.type_name()));
  return value;
}

Value abs_filter(Interpreter& run, const Value& input, const Arguments& /*given*/) {
  const Value& number = checked_number("abs", input);
  if (number.is_real()) return std::fabs(number.real());
  return number.integer() < 0 ? run.binary("-", 0, number) : Value(number.integer());
}

Value round_filter(Interpreter& run, const Value& input, const Arguments& given) {
  const BoundArguments arguments("round", given, {"precision", "method"});
  const Value& number = checked_number("round", input);
  const int64_t precision = arguments.integer_or(0, 0);
  const std::string method = to_text(arguments.value_or(1, "common"));
  if (precision < -300 || precision > 300)
    throw Failure(str("round: precision is ", precision, "; expected -300 to 300"));
  const double scale = std::pow(10.0, static_cast<double>(precision));
  if (method == "ceil") return std::ceil(number.real() * scale) / scale;
  if (method == "floor") return std::floor(number.real() * scale) / scale;
  if (method != "common") throw Failure("round: method must be common, ceil or floor");
  if (!number.is_real() && precision >= 0) return number.integer();
  if (precision < 0) {
    const double rounded = std::nearbyint(number.real() * scale) / scale;
    return number.is_real() ? Value(rounded) : Value(truncated(rounded).value_or(0));
  }
  char buffer[700];  // printf rounds the exact value, like Python
  const int length = std::snprintf(buffer, sizeof buffer, "%.*f", static_cast<int>(precision), number.real());
  run.charge(static_cast<size_t>(length));
  return parse_whole<double>(std::string(buffer, static_cast<size_t>(length))).value_or(number.real());
}

}  // namespace

const FilterTable& number_filters() {
  static const FilterTable table = {
      {"int", int_filter}, {"float", float_filter}, {"abs", abs_filter}, {"round", round_filter}};
  return table;
}

}  // namespace lamina::text::jinja
