#include "lamina/text/template/string_literal.h"

#include <cstdio>

#include "lamina/base/error.h"
#include "lamina/text/template/value.h"
#include "lamina/text/utf8.h"

namespace lamina::text::jinja {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

char32_t hex_escape(std::string_view digits, size_t count) {
  char32_t value = 0;
  for (size_t i = 0; i < count; ++i) {
    const int digit = i < digits.size() ? hex_digit(digits[i]) : -1;
    if (digit < 0) throw Failure(str("an escape in a string has too few hexadecimal digits; expected ", count));
    value = value * 16 + static_cast<char32_t>(digit);
  }
  if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) {
    throw Failure("an escape in a string is not a Unicode character");
  }
  return value;
}

/// jinja2 escapes non-ASCII characters before it decodes a literal. So a backslash before one escapes that escape: "\é"
/// becomes the four characters "\xe9".
void append_spelled_out(std::string& out, char32_t c) {
  char buffer[16];
  const char* format = c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x";
  std::snprintf(buffer, sizeof buffer, format, static_cast<unsigned>(c));
  out += buffer;
}

/// Appends the character of an escape sequence. literal[at] is the first character after the backslash. Returns the
/// length.
size_t append_escape(std::string& out, std::string_view literal, size_t at) {
  static constexpr std::string_view kNames = "abfnrtv\\'\"\n";
  static constexpr std::string_view kMeanings = "\a\b\f\n\r\t\v\\'\"";
  const char c = literal[at];
  const size_t simple = kNames.find(c);
  if (simple < kMeanings.size()) {
    out += kMeanings[simple];
    return 1;
  }
  if (simple != std::string_view::npos) return 1;  // a backslash at the end of a line joins the lines
  if (c == 'x' || c == 'u' || c == 'U') {
    const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
    append_utf8(out, hex_escape(literal.substr(at + 1), digits));
    return 1 + digits;
  }
  if (c >= '0' && c <= '7') {
    char32_t value = 0;
    size_t length = 0;
    while (length < 3 && at + length < literal.size() && literal[at + length] >= '0' && literal[at + length] <= '7') {
      value = value * 8 + static_cast<char32_t>(literal[at + length++] - '0');
    }
    append_utf8(out, value);
    return length;
  }
  if (c == 'N') throw Failure("the escape \\N{…} is not supported; write the character itself");
  const CodePoint point = first_code_point(literal.substr(at, 4));
  if (point.length > 1) {
    append_spelled_out(out, point.value);
    return point.length;
  }
  out += '\\';
  out += c;
  return 1;
}

}  // namespace

std::string unescape_literal(std::string_view literal) {
  std::string out;
  for (size_t at = 0; at < literal.size();) {
    if (literal[at] != '\\' || at + 1 == literal.size()) {
      out += literal[at++];
    } else {
      at += 1 + append_escape(out, literal, at + 1);
    }
  }
  return out;
}

}  // namespace lamina::text::jinja
