#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace lamina::search {

/// A word of a text: its folded form, and its byte range in the text.
struct Word {
  std::string_view folded;  ///< valid during the call
  size_t begin = 0;
  size_t end = 0;
};

/// Maximum size of a folded word in bytes. Longer words are cut between characters.
inline constexpr size_t kMaxWordBytes = 128;

/// Calls `take` for each word of `text`, in order. A word is a maximal run of letters, marks and digits (Unicode
/// categories L, M, N). Everything else, and invalid UTF-8, separates words. Han characters, Hiragana and Katakana are
/// single words, because these scripts do not separate words. Words are folded by Unicode's NFKC case folding: to lower
/// case, and compatibility forms such as full-width letters to plain ones.
void each_word(std::string_view text, const std::function<void(const Word&)>& take);

std::vector<std::string> words_of(std::string_view text);  ///< the folded words

}  // namespace lamina::search
