#include "lamina/search/words.h"

#include <utf8proc.h>

#include <cstdint>
#include <cstdlib>
#include <memory>

namespace lamina::search {
namespace {

enum class CharacterClass { separator, word, single };

struct Character {
  utf8proc_int32_t code = 0;
  size_t length = 1;
  bool valid = false;
};

Character character_at(std::string_view text, size_t at) {
  Character character;
  const auto length = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data() + at),
                                       static_cast<utf8proc_ssize_t>(text.size() - at), &character.code);
  if (length <= 0) return character;
  character.length = static_cast<size_t>(length);
  character.valid = true;
  return character;
}

bool between(utf8proc_int32_t code, utf8proc_int32_t low, utf8proc_int32_t high) { return code >= low && code <= high; }

/// Whether a character is Han, Hiragana or Katakana; each of these is a word of its own.
bool is_single(utf8proc_int32_t code) {
  return between(code, 0x3041, 0x3096) || between(code, 0x30A1, 0x30FA) || between(code, 0x3400, 0x4DBF) ||
         between(code, 0x4E00, 0x9FFF) || between(code, 0xF900, 0xFAFF) || between(code, 0x20000, 0x323AF);
}

CharacterClass class_of(const Character& character) {
  if (!character.valid) return CharacterClass::separator;
  if (is_single(character.code)) return CharacterClass::single;
  const utf8proc_category_t category = utf8proc_category(character.code);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NO ? CharacterClass::word
                                                                              : CharacterClass::separator;
}

bool is_ascii_word(unsigned char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/// Cuts the word before the first character that would exceed kMaxWordBytes.
void limit_word(std::string& word) {
  if (word.size() <= kMaxWordBytes) return;
  size_t end = kMaxWordBytes;
  while (end > 0 && (static_cast<unsigned char>(word[end]) & 0xC0U) == 0x80U) --end;
  word.resize(end);
}

void fold(std::string_view word, bool ascii, std::string& folded) {
  folded.assign(word.substr(0, 4 * kMaxWordBytes));
  if (ascii) {
    for (char& c : folded) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  } else {
    // A cut may split a character; utf8proc reports that, and the word would stay unfolded. So cut at a character.
    while (!folded.empty() && folded.size() < word.size() &&
           (static_cast<unsigned char>(word[folded.size()]) & 0xC0U) == 0x80U) {
      folded.pop_back();
    }
    utf8proc_uint8_t* result = nullptr;
    constexpr auto kFold = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT |
                                                          UTF8PROC_CASEFOLD | UTF8PROC_IGNORE);
    const utf8proc_ssize_t length = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(folded.data()),
                                                 static_cast<utf8proc_ssize_t>(folded.size()), &result, kFold);
    const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(result, std::free);
    if (length >= 0) folded.assign(reinterpret_cast<const char*>(result), static_cast<size_t>(length));
  }
  limit_word(folded);
}

}  // namespace

void each_word(std::string_view text, const std::function<void(const Word&)>& take) {
  std::string folded;
  size_t begin = 0;
  bool inside = false;
  bool ascii = true;
  const auto finish = [&](size_t end) {
    if (!inside) return;
    inside = false;
    fold(text.substr(begin, end - begin), ascii, folded);
    if (!folded.empty()) take({folded, begin, end});
  };
  const auto start = [&](size_t at) {
    if (inside) return;
    inside = true;
    ascii = true;
    begin = at;
  };
  for (size_t at = 0; at < text.size();) {
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte < 0x80) {
      is_ascii_word(byte) ? start(at) : finish(at);
      ++at;
      continue;
    }
    const Character character = character_at(text, at);
    const CharacterClass kind = class_of(character);
    if (kind == CharacterClass::word) {
      start(at);
      ascii = false;
    } else {
      finish(at);
    }
    if (kind == CharacterClass::single) {
      start(at);
      ascii = false;
      finish(at + character.length);
    }
    at += character.length;
  }
  finish(text.size());
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  each_word(text, [&](const Word& word) { words.emplace_back(word.folded); });
  return words;
}

}  // namespace lamina::search
