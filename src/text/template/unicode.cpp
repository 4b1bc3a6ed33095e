#include "lamina/text/template/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstring>

#include "lamina/text/template/value.h"
#include "lamina/text/utf8.h"

namespace lamina::text::jinja {
namespace {

utf8proc_category_t category_of(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }
char32_t upper_of(char32_t c) { return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))); }
char32_t lower_of(char32_t c) { return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))); }

constexpr char32_t kSharpS = 0xDF;

/// Calls `visit` with each code point and its bytes.
template <class F>
void each_character(std::string_view text, const F& visit) {
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = first_code_point(text.substr(at, 4));
    const size_t length = std::max<size_t>(point.length, 1);
    visit(point.value, text.substr(at, length));
    at += length;
  }
}

void append_upper(std::string& out, char32_t c) {
  if (c == kSharpS) {
    out += "SS";
  } else {
    append_utf8(out, upper_of(c));
  }
}

bool is_line_end(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

template <class F>
std::string_view strip_if(std::string_view text, Side side, const F& drops) {
  if (side != Side::right) {
    while (!text.empty()) {
      const CodePoint point = first_code_point(text.substr(0, 4));
      if (!drops(point.value)) break;
      text.remove_prefix(std::max<size_t>(point.length, 1));
    }
  }
  while (side != Side::left && !text.empty()) {
    size_t start = text.size() - 1;
    while (start > 0 && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) --start;
    if (!drops(first_code_point(text.substr(start)).value)) break;
    text = text.substr(0, start);
  }
  return text;
}

}  // namespace

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_printable(char32_t c) {
  if (c == ' ') return true;
  switch (category_of(c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS: return false;
    default: return true;
  }
}

bool is_letter(char32_t c) {
  const utf8proc_category_t category = category_of(c);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}
bool is_digit(char32_t c) { return category_of(c) == UTF8PROC_CATEGORY_ND; }
bool is_upper(char32_t c) { return category_of(c) == UTF8PROC_CATEGORY_LU; }
bool is_lower(char32_t c) { return category_of(c) == UTF8PROC_CATEGORY_LL; }

size_t count_characters(std::string_view text) {
  return static_cast<size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::vector<std::string_view> characters(std::string_view text) {
  std::vector<std::string_view> all;
  each_character(text, [&](char32_t, std::string_view bytes) { all.push_back(bytes); });
  return all;
}

std::vector<char32_t> code_points(std::string_view text) {
  std::vector<char32_t> all;
  each_character(text, [&](char32_t c, std::string_view) { all.push_back(c); });
  return all;
}

size_t byte_offset(std::string_view text, size_t index) {
  size_t at = 0;
  for (; at < text.size(); ++at) {
    if ((static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) continue;
    if (index-- == 0) return at;
  }
  return at;
}

std::string to_upper(std::string_view text) {
  std::string out;
  each_character(text, [&](char32_t c, std::string_view) { append_upper(out, c); });
  return out;
}

std::string to_lower(std::string_view text) {
  std::string out;
  each_character(text, [&](char32_t c, std::string_view) { append_utf8(out, lower_of(c)); });
  return out;
}

std::string capitalized(std::string_view text) {
  const size_t first = byte_offset(text, 1);
  std::string out;
  each_character(text.substr(0, first), [&](char32_t c, std::string_view) { append_utf8(out, upper_of(c)); });
  return out + to_lower(text.substr(first));
}

std::string title_cased(std::string_view text) {
  std::string out;
  bool in_word = false;
  each_character(text, [&](char32_t c, std::string_view) {
    append_utf8(out, in_word ? lower_of(c) : upper_of(c));
    in_word = upper_of(c) != c || lower_of(c) != c || is_upper(c) || is_lower(c);
  });
  return out;
}

std::string swap_cased(std::string_view text) {
  std::string out;
  each_character(text, [&](char32_t c, std::string_view) {
    if (is_lower(c)) {
      append_upper(out, c);
    } else {
      append_utf8(out, lower_of(c));
    }
  });
  return out;
}

std::string_view strip(std::string_view text, Side side) { return strip_if(text, side, is_space); }

std::string_view strip(std::string_view text, Side side, std::string_view set) {
  const std::vector<char32_t> drop = code_points(set);
  return strip_if(text, side, [&](char32_t c) { return std::ranges::find(drop, c) != drop.end(); });
}

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '\'': out += "&#39;"; break;
      case '"': out += "&#34;"; break;
      default: out += c;
    }
  }
  return out;
}

std::vector<std::string_view> split_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  size_t start = 0;
  size_t at = 0;
  while (at < text.size()) {
    const CodePoint point = first_code_point(text.substr(at, 4));
    const size_t length = std::max<size_t>(point.length, 1);
    at += length;
    if (!is_line_end(point.value)) continue;
    lines.push_back(text.substr(start, at - length - start));
    if (point.value == '\r' && at < text.size() && text[at] == '\n') ++at;
    start = at;
  }
  if (start < text.size()) lines.push_back(text.substr(start));
  return lines;
}

size_t find_text(std::string_view text, std::string_view part, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (part.empty()) return from;
  if (part.size() > text.size() - from) return std::string_view::npos;
  // memmem is linear for any input, std::string_view::find is quadratic.
  const void* found = memmem(text.data() + from, text.size() - from, part.data(), part.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

size_t rfind_text(std::string_view text, std::string_view part) {
  const std::string reversed_text(text.rbegin(), text.rend());
  const std::string reversed_part(part.rbegin(), part.rend());
  const size_t found = find_text(reversed_text, reversed_part);
  return found == std::string_view::npos ? found : text.size() - found - part.size();
}

std::string replace_text(std::string_view text, std::string_view old_part, std::string_view new_part, int64_t count,
                         size_t max_size) {
  std::string out;
  size_t left = count < 0 ? SIZE_MAX : static_cast<size_t>(count);
  const auto put = [&](std::string_view part) {
    if (out.size() + part.size() > max_size) throw Failure("replace: the result is too long");
    out += part;
  };
  size_t at = 0;
  if (old_part.empty()) {  // Python inserts before every character and at the end
    for (const std::string_view one : characters(text)) {
      if (left > 0) --left, put(new_part);
      put(one);
    }
    if (left > 0) put(new_part);
    return out;
  }
  for (; left > 0; --left) {
    const size_t found = find_text(text, old_part, at);
    if (found == std::string_view::npos) break;
    put(text.substr(at, found - at));
    put(new_part);
    at = found + old_part.size();
  }
  put(text.substr(at));
  return out;
}

}  // namespace lamina::text::jinja
