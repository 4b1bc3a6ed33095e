#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lamina::text {

/// One code point at the front of some bytes. `length` is 0 where they are no well-formed UTF-8 (nothing there, a stray
/// or missing continuation, an overlong form, a surrogate, beyond U+10FFFF).
struct CodePoint {
  char32_t value = 0;
  size_t length = 0;
};
CodePoint first_code_point(std::string_view bytes);

void append_utf8(std::string& text, char32_t value);

/// Bytes from the front that are well-formed UTF-8.
size_t valid_prefix(std::string_view bytes);

/// How many bytes at the end are the beginning of a sequence that more bytes could complete; 0 to 3.
size_t incomplete_suffix(std::string_view bytes);

/// "U+00E9 'é'", or "byte 0xE9" where the bytes are no UTF-8: how messages name what stands at the front.
std::string name_of_first(std::string_view bytes);

}  // namespace lamina::text
