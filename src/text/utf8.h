#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lamina::text {

/// The first code point of a byte sequence. `length` is 0 if the bytes do not begin with valid UTF-8 (empty, stray or
/// missing continuation byte, overlong form, surrogate, beyond U+10FFFF).
struct CodePoint {
  char32_t value = 0;
  size_t length = 0;
};
CodePoint first_code_point(std::string_view bytes);

void append_utf8(std::string& text, char32_t value);

/// Length of the longest valid UTF-8 prefix.
size_t valid_prefix(std::string_view bytes);

/// Number of bytes (0 to 3) at the end that begin a sequence which more bytes could complete.
size_t incomplete_suffix(std::string_view bytes);

/// Describes the first character for messages: "U+00E9 'é'", or "byte 0xE9" if the bytes are not UTF-8.
std::string name_of_first(std::string_view bytes);

}  // namespace lamina::text
