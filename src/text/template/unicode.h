#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lamina::text::jinja {

// Python's str operations on code points. Texts must be valid UTF-8. Case mapping is one to one, except for ß.

bool is_space(char32_t c);
bool is_printable(char32_t c);
bool is_letter(char32_t c);
bool is_digit(char32_t c);
bool is_upper(char32_t c);
bool is_lower(char32_t c);

size_t count_characters(std::string_view text);
/// The characters, as views into `text`.
std::vector<std::string_view> characters(std::string_view text);
std::vector<char32_t> code_points(std::string_view text);
/// Byte offset of code point `index`, at most the size of `text`.
size_t byte_offset(std::string_view text, size_t index);

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string capitalized(std::string_view text);
std::string title_cased(std::string_view text);
std::string swap_cased(std::string_view text);

enum class Side { left, right, both };
/// Without `set`, strips white space; otherwise strips the code points in `set`.
std::string_view strip(std::string_view text, Side side);
std::string_view strip(std::string_view text, Side side, std::string_view set);

/// Replaces & < > ' " by HTML entities.
std::string escape_html(std::string_view text);

/// Like Python's str.splitlines; the results have no line ends.
std::vector<std::string_view> split_lines(std::string_view text);

/// First occurrence of `part` at or after `from`, or npos. Takes linear time for any input.
size_t find_text(std::string_view text, std::string_view part, size_t from = 0);
size_t rfind_text(std::string_view text, std::string_view part);
/// Python's str.replace. A negative `count` replaces all. Throws Failure if the result exceeds `max_size` bytes.
std::string replace_text(std::string_view text, std::string_view old_part, std::string_view new_part, int64_t count,
                         size_t max_size);

}  // namespace lamina::text::jinja
