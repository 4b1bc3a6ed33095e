#include "lamina/text/ascii_scanner.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "lamina/text/patterns.h"

namespace lamina::text {
namespace {

enum Class : uint8_t { kOther, kLetter, kDigit, kSpace, kBeyond, kEnd };

constexpr std::array<Class, 256> kClasses = [] {
  std::array<Class, 256> classes{};
  for (size_t c = 0; c < 256; ++c) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    const bool space = c == ' ' || (c >= '\t' && c <= '\r');
    classes[c] = c >= 0x80 ? kBeyond : letter ? kLetter : c >= '0' && c <= '9' ? kDigit : space ? kSpace : kOther;
  }
  return classes;
}();

Class class_at(std::string_view text, size_t at) {
  return at < text.size() ? kClasses[static_cast<unsigned char>(text[at])] : kEnd;
}

/// The end of the run of characters of one class that starts at `at`.
size_t run(std::string_view text, size_t at, Class of) {
  while (class_at(text, at) == of) ++at;
  return at;
}

/// Like run(), but returns 0 if a non-ASCII character follows, because it might belong to the run.
size_t closed_run(std::string_view text, size_t at, Class of) {
  const size_t end = run(text, at, of);
  return class_at(text, end) == kBeyond ? 0 : end;
}

bool is_newline(char c) { return c == '\r' || c == '\n'; }

/// Length of a contraction ('s 't 'm 'd 're 've 'll) at the start, or 0. `fold` ignores case.
size_t contraction(std::string_view text, bool fold) {
  const auto letter = [&](size_t at) {
    return at < text.size() ? static_cast<char>(text[at] | (fold ? 0x20 : 0)) : '\0';
  };
  const char first = letter(1);
  const char second = letter(2);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  const bool two = ((first == 'r' || first == 'v') && second == 'e') || (first == 'l' && second == 'l');
  return two ? 3 : 0;
}

/// Length of a match of \s+(?!\S)|\s+ at the start, given that the white space ends at `end`.
size_t spaces(std::string_view text, size_t end) { return end == text.size() || end == 1 ? end : end - 1; }

/// Scanner for 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
size_t scan_gpt2(std::string_view text, size_t) {
  if (text[0] == '\'') {
    if (const size_t length = contraction(text, false)) return length;
  }
  const size_t begin = text[0] == ' ' ? 1 : 0;
  const Class kind = class_at(text, begin);
  if (kind == kBeyond) return 0;
  if (kind == kLetter || kind == kDigit || kind == kOther) return closed_run(text, begin, kind);
  const size_t end = closed_run(text, 0, kSpace);
  return end == 0 ? 0 : spaces(text, end);
}

/// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,digits}| ?[^\s\p{L}\p{N}]+[\r\n]*|
/// \s*[\r\n]+|\s+(?!\S)|\s+
size_t scan_cl100k(std::string_view text, size_t digits) {
  const Class kind = class_at(text, 0);
  const Class next = class_at(text, 1);
  if (kind == kBeyond || (next == kBeyond && kind != kDigit)) return 0;
  if (text[0] == '\'') {
    if (const size_t length = contraction(text, true)) return length;
  }
  if (kind == kLetter) return closed_run(text, 1, kLetter);
  if (kind == kDigit) {
    const size_t end = run(text, 1, kDigit);
    if (end >= digits) return digits;
    return class_at(text, end) == kBeyond ? 0 : end;
  }
  if (next == kLetter && !is_newline(text[0])) return closed_run(text, 1, kLetter);
  if (kind == kOther || (text[0] == ' ' && next == kOther)) {
    size_t end = closed_run(text, 1, kOther);
    while (end > 0 && end < text.size() && is_newline(text[end])) ++end;
    return end;
  }
  const size_t end = closed_run(text, 0, kSpace);
  for (size_t at = end; at > 0; --at) {
    if (is_newline(text[at - 1])) return at;
  }
  return end == 0 ? 0 : spaces(text, end);
}

}  // namespace

AsciiScanner AsciiScanner::of(const std::string& regex) {
  AsciiScanner scanner;
  const std::string name = name_of_pattern(regex);
  if (name == "gpt2") scanner.scan_ = scan_gpt2;
  if (name == "cl100k" || name == "one-digit") {
    scanner.scan_ = scan_cl100k;
    scanner.digits_ = name == "cl100k" ? 3 : 1;
  }
  return scanner;
}

}  // namespace lamina::text
