#include "lamina/text/utf8.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>

namespace lamina::text {
namespace {

constexpr std::array<char32_t, 5> kSmallest = {0, 0, 0x80, 0x800, 0x10000};  // by the length of the sequence

size_t announced_length(unsigned char lead) {
  if (lead < 0x80) return 1;
  if (lead < 0xC2) return 0;
  if (lead < 0xE0) return 2;
  if (lead < 0xF0) return 3;
  return lead < 0xF5 ? 4 : 0;
}

bool is_continuation(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

}  // namespace

CodePoint first_code_point(std::string_view bytes) {
  if (bytes.empty()) return {};
  const auto lead = static_cast<unsigned char>(bytes[0]);
  const size_t length = announced_length(lead);
  if (length == 1) return {lead, 1};
  if (length == 0 || bytes.size() < length) return {};
  char32_t value = lead & (0x7FU >> length);
  for (size_t i = 1; i < length; ++i) {
    if (!is_continuation(bytes[i])) return {};
    value = value << 6 | (static_cast<unsigned char>(bytes[i]) & 0x3F);
  }
  const bool surrogate = value >= 0xD800 && value <= 0xDFFF;
  if (value < kSmallest[length] || value > 0x10FFFF || surrogate) return {};
  return {value, length};
}

void append_utf8(std::string& text, char32_t value) {
  const auto put = [&](char32_t byte) { text += static_cast<char>(byte); };
  if (value < 0x80) {
    put(value);
  } else if (value < 0x800) {
    put(0xC0 | value >> 6);
    put(0x80 | (value & 0x3F));
  } else if (value < 0x10000) {
    put(0xE0 | value >> 12);
    put(0x80 | (value >> 6 & 0x3F));
    put(0x80 | (value & 0x3F));
  } else {
    put(0xF0 | value >> 18);
    put(0x80 | (value >> 12 & 0x3F));
    put(0x80 | (value >> 6 & 0x3F));
    put(0x80 | (value & 0x3F));
  }
}

size_t valid_prefix(std::string_view bytes) {
  size_t at = 0;
  while (at < bytes.size()) {
    uint64_t eight = 0;  // fast path: eight ASCII bytes at once
    if (at + 8 <= bytes.size()) {
      std::memcpy(&eight, bytes.data() + at, 8);
      if ((eight & 0x8080808080808080U) == 0) {
        at += 8;
        continue;
      }
    }
    const CodePoint point = first_code_point(bytes.substr(at, 4));
    if (point.length == 0) break;
    at += point.length;
  }
  return at;
}

size_t incomplete_suffix(std::string_view bytes) {
  for (size_t length = 1; length <= std::min<size_t>(3, bytes.size()); ++length) {
    const std::string_view tail = bytes.substr(bytes.size() - length);
    if (is_continuation(tail[0])) continue;
    if (announced_length(static_cast<unsigned char>(tail[0])) <= length) return 0;
    // The sequence can still become valid if it is valid with the smallest or the largest continuation. Overlong forms
    // and surrogates are invalid with both.
    std::string least(tail);
    std::string greatest(tail);
    least.resize(announced_length(static_cast<unsigned char>(tail[0])), '\x80');
    greatest.resize(least.size(), '\xBF');
    return first_code_point(least).length > 0 || first_code_point(greatest).length > 0 ? length : 0;
  }
  return 0;
}

std::string name_of_first(std::string_view bytes) {
  const CodePoint point = first_code_point(bytes.substr(0, 4));
  char name[32];
  if (point.length == 0) {
    std::snprintf(name, sizeof name, "byte 0x%02X", bytes.empty() ? 0U : static_cast<unsigned char>(bytes[0]));
    return name;
  }
  std::snprintf(name, sizeof name, "U+%04X", static_cast<unsigned>(point.value));
  if (point.value < 0x20 || point.value == 0x7F) return name;
  return std::string(name) + " '" + std::string(bytes.substr(0, point.length)) + "'";
}

}  // namespace lamina::text
