#include "lamina/text/unicode_steps.h"

#include <utf8proc.h>

#include "lamina/text/utf8.h"

namespace lamina::text {
namespace {

utf8proc_category_t category_of(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

/// Calls body(code point, bytes, valid) for each character. An invalid byte is a character of length 1 that is not
/// valid.
template <class Body>
void each_character(std::string_view text, const Body& body) {
  while (!text.empty()) {
    const CodePoint point = first_code_point(text.substr(0, 4));
    const size_t length = point.length == 0 ? 1 : point.length;
    body(point.value, text.substr(0, length), point.length > 0);
    text.remove_prefix(length);
  }
}

bool is_cjk(char32_t c) {
  // The ranges of Hugging Face's library. The gap before U+2B920 is a misprint there (BERT has U+2B820), but ids depend
  // on it.
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
         (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

bool is_control(char32_t c) {
  if (c == '\t' || c == '\n' || c == '\r') return false;
  if (c < 0x80) return c < 0x20 || c == 0x7F;
  const utf8proc_category_t category = category_of(c);
  return category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF || category == UTF8PROC_CATEGORY_CO ||
         category == UTF8PROC_CATEGORY_CS;
}

}  // namespace

bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == ' ' || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

void append_bert_cleaned(std::string_view text, const NormalizerStep& step, std::string& out) {
  each_character(text, [&](char32_t c, std::string_view bytes, bool valid) {
    if (step.clean_text) {
      if (!valid || c == 0 || c == 0xFFFD || is_control(c)) return;
      if (is_white_space(c)) {
        out += ' ';
        return;
      }
    }
    const bool spaced = step.space_cjk && valid && is_cjk(c);
    if (spaced) out += ' ';
    out += bytes;
    if (spaced) out += ' ';
  });
}

void append_without_accents(std::string_view text, bool all_marks, std::string& out) {
  each_character(text, [&](char32_t c, std::string_view bytes, bool valid) {
    const utf8proc_category_t category = valid && c >= 0x300 ? category_of(c) : UTF8PROC_CATEGORY_LL;
    const bool mark = category == UTF8PROC_CATEGORY_MN ||
                      (all_marks && (category == UTF8PROC_CATEGORY_MC || category == UTF8PROC_CATEGORY_ME));
    if (!mark) out += bytes;
  });
}

void append_lowercase(std::string_view text, std::string& out) {
  each_character(text, [&](char32_t c, std::string_view bytes, bool valid) {
    if (c < 0x80 || !valid) {
      out += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : bytes[0];
    } else if (c == 0x130) {
      out += "i\xCC\x87";  // the only character whose lower case is two characters
    } else {
      append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
    }
  });
}

void append_nmt(std::string_view text, std::string& out) {
  each_character(text, [&](char32_t c, std::string_view bytes, bool valid) {
    if (!valid) {
      out += bytes;
      return;
    }
    const bool removed =
        (c >= 0x01 && c <= 0x08) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F;
    if (removed) return;
    const bool space = c == 0x09 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 ||
                       (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF ||
                       c == 0xFFFD;
    if (space) {
      out += ' ';
    } else {
      out += bytes;
    }
  });
}

std::string_view stripped(std::string_view text, bool left, bool right) {
  while (left && !text.empty()) {
    const CodePoint point = first_code_point(text.substr(0, 4));
    if (point.length == 0 || !is_white_space(point.value)) break;
    text.remove_prefix(point.length);
  }
  while (right && !text.empty()) {
    size_t length = 1;
    while (length < 4 && length < text.size() && (static_cast<unsigned char>(text[text.size() - length]) >> 6) == 2) {
      ++length;
    }
    const CodePoint point = first_code_point(text.substr(text.size() - length));
    if (point.length != length || !is_white_space(point.value)) break;
    text.remove_suffix(length);
  }
  return text;
}

void append_charsmap(std::string_view text, const Charsmap& map, std::string& out) {
  while (!text.empty()) {
    const auto match = map.longest(text);
    if (match) {
      out += match->form;
      text.remove_prefix(match->length);
      continue;
    }
    const size_t length = first_code_point(text.substr(0, 4)).length;
    if (length == 0) {
      out += "\xEF\xBF\xBD";
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
}

void append_charsmap_graphemes(std::string_view text, const Charsmap& map, std::string& out) {
  const auto flush = [&](std::string_view grapheme) {
    if (grapheme.size() < 6) {
      if (const auto match = map.shortest(grapheme)) {
        out += match->form;
        return;
      }
    }
    each_character(grapheme, [&](char32_t, std::string_view bytes, bool valid) {
      const auto match = valid ? map.shortest(bytes) : std::nullopt;
      out += match ? match->form : bytes;
    });
  };
  size_t begin = 0;
  size_t at = 0;
  char32_t last = 0;
  utf8proc_int32_t state = 0;
  each_character(text, [&](char32_t c, std::string_view bytes, bool valid) {
    const bool breaks =
        at > 0 && (!valid || utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(last),
                                                              static_cast<utf8proc_int32_t>(c), &state));
    if (breaks) {
      flush(text.substr(begin, at - begin));
      begin = at;
    }
    if (!valid) state = 0;
    last = valid ? c : U'\n';  // a line break, so that nothing joins an invalid byte
    at += bytes.size();
  });
  if (begin < text.size()) flush(text.substr(begin));
}

}  // namespace lamina::text
