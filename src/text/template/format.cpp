// The two ways of formatting in Python: "%s" % values, and "{}".format(values).
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "lamina/base/error.h"
#include "lamina/text/template/interpreter.h"
#include "lamina/text/template/unicode.h"
#include "lamina/text/utf8.h"

namespace lamina::text::jinja {
namespace {

constexpr int kMaxFormatWidth = 100'000;
constexpr int kMaxFormatPrecision = 300;

/// A format specification: [[fill]align][sign][#][0][width][,][.precision][type].
struct FieldSpec {
  std::string fill = " ";
  char align = '\0';  ///< '<', '>', '^', '=' or none
  char sign = '-';
  bool alternate = false;
  bool thousands = false;
  int width = 0;
  int precision = -1;
  char type = '\0';
};

/// Reads and removes a number at the start of `text`.
int take_number(std::string_view& text, int fallback, int most) {
  int value = fallback;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec == std::errc::result_out_of_range || value > most)
    throw Failure("format: a width or precision is too large");
  text.remove_prefix(static_cast<size_t>(result.ptr - text.data()));
  return value;
}

std::string padded(std::string text, const FieldSpec& spec, char default_align) {
  const auto length = static_cast<int>(count_characters(text));
  const int missing = std::max(0, spec.width - length);
  const char align = spec.align == '\0' ? default_align : spec.align;
  const auto fill = [&](int count) {
    std::string out;
    for (int i = 0; i < count; ++i) out += spec.fill;
    return out;
  };
  if (align == '<') return text + fill(missing);
  if (align == '^') return fill(missing / 2) + text + fill(missing - missing / 2);
  if (align == '=') {  // pad after the sign
    const size_t sign = !text.empty() && (text[0] == '-' || text[0] == '+' || text[0] == ' ') ? 1 : 0;
    return text.substr(0, sign) + fill(missing) + text.substr(sign);
  }
  return fill(missing) + text;
}

std::string with_sign(std::string digits, bool negative, const FieldSpec& spec) {
  if (negative) return "-" + digits;
  return spec.sign == '+' ? "+" + digits : spec.sign == ' ' ? " " + digits : digits;
}

std::string with_thousands(std::string digits) {
  const size_t end = std::min(digits.find_first_not_of("0123456789"), digits.size());
  for (size_t at = end; at > 3; at -= 3) digits.insert(at - 3, ",");
  return digits;
}

std::string integer_digits(int64_t value, const FieldSpec& spec) {
  const int base = spec.type == 'x' || spec.type == 'X' ? 16 : spec.type == 'o' ? 8 : spec.type == 'b' ? 2 : 10;
  const uint64_t magnitude = value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  char buffer[72];
  std::string digits(buffer, std::to_chars(buffer, buffer + sizeof buffer, magnitude, base).ptr);
  if (spec.type == 'X') digits = to_upper(digits);
  if (spec.thousands) digits = with_thousands(std::move(digits));
  if (spec.alternate && base != 10) digits = (base == 16 ? "0x" : base == 8 ? "0o" : "0b") + digits;
  return with_sign(std::move(digits), value < 0, spec);
}

std::string real_digits(double value, const FieldSpec& spec) {
  const bool percent = spec.type == '%';
  const char type = percent ? 'f' : spec.type == '\0' ? 'g' : spec.type;
  const int precision = spec.precision < 0 ? 6 : spec.precision;
  const std::string format = std::string("%.*") + type;
  const double magnitude = std::fabs(percent ? value * 100 : value);
  std::string digits(static_cast<size_t>(precision) + 400, '\0');
  const int length = std::snprintf(digits.data(), digits.size(), format.c_str(), precision, magnitude);
  digits.resize(static_cast<size_t>(length));
  if (spec.thousands) digits = with_thousands(std::move(digits));
  return with_sign(digits + (percent ? "%" : ""), std::signbit(value), spec);
}

std::string cut_text(const std::string& text, const FieldSpec& spec) {
  return spec.precision < 0 ? text : text.substr(0, byte_offset(text, static_cast<size_t>(spec.precision)));
}

FieldSpec parse_field(std::string_view text) {
  FieldSpec spec;
  const auto is_align = [](std::string_view c) { return c == "<" || c == ">" || c == "^" || c == "="; };
  const size_t first = byte_offset(text, 1);
  if (first < text.size() && is_align(text.substr(first, 1))) {
    spec.fill = text.substr(0, first);
    spec.align = text[first];
    text.remove_prefix(first + 1);
  } else if (is_align(text.substr(0, 1))) {
    spec.align = text[0];
    text.remove_prefix(1);
  }
  const auto skip = [&](char c) {
    if (!text.starts_with(c)) return false;
    text.remove_prefix(1);
    return true;
  };
  for (const char sign : {'+', '-', ' '}) {
    if (skip(sign)) spec.sign = sign;
  }
  spec.alternate = skip('#');
  if (text.starts_with('0') && spec.align == '\0') {
    spec.fill = "0";
    spec.align = '=';
  }
  spec.width = take_number(text, 0, kMaxFormatWidth);
  spec.thousands = skip(',');
  if (skip('.')) spec.precision = take_number(text, 0, kMaxFormatPrecision);
  if (text.size() > 1) throw Failure("format: invalid format specifier");
  if (!text.empty()) spec.type = text[0];
  return spec;
}

/// Python's format(value, spec).
std::string formatted(Interpreter& run, const Value& value, std::string_view text) {
  run.charge(value.size());
  if (text.empty()) return to_text(value);
  const FieldSpec spec = parse_field(text);
  const std::string_view real_types = "eEfFgG%";
  const bool real_type = spec.type != '\0' && real_types.find(spec.type) != std::string_view::npos;
  std::string out;
  if (value.is_number() && !value.is_bool() && (value.is_real() || real_type)) {
    const bool plain = spec.type == '\0' && spec.precision < 0;
    out = padded(plain ? float_repr(value.real()) : real_digits(value.real(), spec), spec, '>');
  } else if (value.is_integer() &&
             (spec.type == '\0' || std::string_view("dxXob").find(spec.type) != std::string_view::npos)) {
    out = padded(integer_digits(value.integer(), spec), spec, '>');
  } else if ((value.is_string() || value.is_bool()) && (spec.type == '\0' || spec.type == 's')) {
    out = padded(cut_text(to_text(value), spec), spec, '<');
  } else {
    throw Failure(str("format: the format '", text.substr(0, 40), "' does not fit a ", value.type_name()));
  }
  run.charge(out.size());
  return out;
}

/// Looks up a field name such as 0, name, name.attribute or name[key].
Value field_value(Interpreter& run, std::string_view field, const Arguments& arguments, size_t& automatic) {
  const size_t end = std::min(field.find_first_of(".["), field.size());
  const std::string_view name = field.substr(0, end);
  size_t index = 0;
  const auto parsed = std::from_chars(name.data(), name.data() + name.size(), index);
  const bool number = parsed.ec == std::errc() && parsed.ptr == name.data() + name.size() && !name.empty();
  Value value;
  if (name.empty() || number) {
    index = name.empty() ? automatic++ : index;
    if (index >= arguments.positional.size()) throw Failure(str("format: there is no value for field ", index));
    value = arguments.positional[index];
  } else {
    const auto found =
        std::ranges::find(arguments.named, name, [](const auto& entry) { return std::string_view(entry.first); });
    if (found == arguments.named.end()) throw Failure(str("format: there is no value named '", name, "'"));
    value = found->second;
  }
  for (std::string_view rest = field.substr(end); !rest.empty();) {
    const bool item = rest[0] == '[';
    const size_t stop = item ? rest.find(']') : std::min(rest.find_first_of(".[", 1), rest.size());
    if (stop == std::string_view::npos) throw Failure("format: a [ in a field has no ]");
    const std::string key(rest.substr(1, stop - 1));
    const bool digits =
        !key.empty() && key.size() < 18 && std::ranges::all_of(key, [](char c) { return c >= '0' && c <= '9'; });
    value = !item ? run.attribute(value, key) : run.item(value, digits ? Value(int64_t{std::stoll(key)}) : Value(key));
    rest.remove_prefix(item ? stop + 1 : stop);
    if (!rest.empty() && rest[0] != '.' && rest[0] != '[') throw Failure("format: invalid field name");
  }
  return value;
}

/// Supplies the values of % formatting, one after another or by name.
class PercentValues {
 public:
  explicit PercentValues(const Value& values) : values_(values) {}
  Value next() {
    const bool tuple = values_.is_sequence(SequenceKind::tuple);
    const size_t count = tuple ? values_.items().items.size() : 1;
    if (used_ >= count) throw Failure("%: not enough values for the format");
    return tuple ? values_.items().items[used_++] : (++used_, values_);
  }
  Value named(const std::string& name) {
    if (!values_.is_dict()) throw Failure("%: the format names values; expected a dict");
    used_ = 1;
    const Value* found = values_.entries().find(std::string_view(name));
    if (found == nullptr) throw Failure(str("%: there is no value named '", name, "'"));
    return *found;
  }
  void check_all_used() const {
    const bool tuple = values_.is_sequence(SequenceKind::tuple);
    const bool left = tuple ? used_ < values_.items().items.size() : used_ == 0 && !values_.is_dict();
    if (left) throw Failure("%: not all values were used by the format");
  }

 private:
  const Value& values_;
  size_t used_ = 0;
};

std::string percent_field(const Value& value, FieldSpec spec) {
  const char type = spec.type;
  if (type == 's' || type == 'r') {
    return padded(cut_text(type == 's' ? to_text(value) : repr(value), spec), spec, '>');
  }
  if (value.is_undefined()) value.fail_undefined();
  if (!value.is_number())
    throw Failure(str("%", std::string(1, type), ": a number is required, not ", value.type_name()));
  if (type == 'd' || type == 'i' || type == 'u') {
    if (value.is_real() && !(std::fabs(value.real()) < 9.2e18))
      throw Failure("%d: the number does not fit into 64 bits");
    spec.type = 'd';
    return padded(integer_digits(value.is_real() ? static_cast<int64_t>(value.real()) : value.integer(), spec), spec,
                  '>');
  }
  if ((type == 'x' || type == 'X' || type == 'o') && !value.is_real())
    return padded(integer_digits(value.integer(), spec), spec, '>');
  if (std::string_view("eEfFgG").find(type) != std::string_view::npos)
    return padded(real_digits(value.real(), spec), spec, '>');
  throw Failure(str("%: the conversion '", std::string(1, type), "' is not supported"));
}

/// Reads the flags, width, precision and type after a %.
FieldSpec take_percent_spec(std::string_view& rest) {
  FieldSpec spec;
  for (; !rest.empty() && std::string_view("-+ 0#").find(rest[0]) != std::string_view::npos; rest.remove_prefix(1)) {
    if (rest[0] == '-') spec.align = '<';
    if (rest[0] == '+' || (rest[0] == ' ' && spec.sign != '+')) spec.sign = rest[0];
    if (rest[0] == '#') spec.alternate = true;
    if (rest[0] == '0' && spec.align != '<') spec.fill = "0", spec.align = '=';
  }
  if (spec.align == '<') spec.fill = " ";
  spec.width = take_number(rest, 0, kMaxFormatWidth);
  if (rest.starts_with('.')) {
    rest.remove_prefix(1);
    spec.precision = take_number(rest, 0, kMaxFormatPrecision);
  }
  if (rest.empty()) throw Failure("%: the format ends within a conversion");
  spec.type = rest[0];
  rest.remove_prefix(1);
  return spec;
}

}  // namespace

std::string percent_format(Interpreter& run, std::string_view format, const Value& values) {
  PercentValues given(values);
  std::string out;
  for (;;) {
    const size_t percent = format.find('%');
    out += format.substr(0, percent);
    if (out.size() > run.limits().max_output) throw Failure("%: the result is too long");
    if (percent == std::string_view::npos) break;
    format.remove_prefix(percent + 1);
    if (format.empty()) throw Failure("%: the format ends within a conversion");
    std::optional<Value> named;
    if (format[0] == '(') {
      const size_t close = format.find(')');
      if (close == std::string_view::npos) throw Failure("%: a ( in the format has no )");
      named = given.named(std::string(format.substr(1, close - 1)));
      format.remove_prefix(close + 1);
    }
    const FieldSpec spec = take_percent_spec(format);
    if (spec.type == '%') {
      out += '%';
      continue;
    }
    const Value value = named ? *named : given.next();
    run.charge(value.size());
    const std::string field = percent_field(value, spec);
    run.charge(field.size());
    out += field;
  }
  given.check_all_used();
  return out;
}

std::string brace_format(Interpreter& run, std::string_view format, const Arguments& arguments) {
  std::string out;
  size_t automatic = 0;
  for (size_t at = 0; at < format.size();) {
    const char c = format[at];
    if (c != '{' && c != '}') {
      const size_t end = std::min(format.find_first_of("{}", at), format.size());
      out += format.substr(at, end - at);
      at = end;
      continue;
    }
    if (format.substr(at + 1, 1) == std::string_view(&c, 1)) {  // escaped: {{ or }}
      out += c;
      at += 2;
      continue;
    }
    const size_t close = c == '{' ? format.find('}', at) : std::string_view::npos;
    if (close == std::string_view::npos) throw Failure(str("format: single '", c, "' in the format"));
    std::string_view field = format.substr(at + 1, close - at - 1);
    if (field.find('{') != std::string_view::npos) throw Failure("format: nested fields are not supported");
    at = close + 1;
    const size_t colon = std::min(field.find(':'), field.size());
    const std::string_view spec = field.substr(std::min(colon + 1, field.size()));
    std::string_view name = field.substr(0, colon);
    const bool as_repr = name.ends_with("!r");
    if (as_repr || name.ends_with("!s")) name.remove_suffix(2);
    const Value value = field_value(run, name, arguments, automatic);
    out += formatted(run, as_repr ? Value(repr(value)) : value, spec);
    if (out.size() > run.limits().max_output) throw Failure("format: the result is too long");
  }
  return out;
}

}  // namespace lamina::text::jinja
