#pragma once

#include <string>
#include <string_view>

#include "lamina/text/charsmap.h"
#include "lamina/text/spec.h"

namespace lamina::text {

// Normalizer steps that work on single characters. They append to `out`. Invalid UTF-8 bytes stay unchanged unless
// stated otherwise.

/// Whether a character has the Unicode property White_Space.
bool is_white_space(char32_t c);

/// BERT's cleaning and CJK spacing. Cleaning removes NUL, U+FFFD and control characters (Cc, Cf, Co), and replaces
/// white space by plain spaces; invalid UTF-8 counts as U+FFFD. With `space_cjk`, adds a space on both sides of each
/// CJK ideograph.
void append_bert_cleaned(std::string_view text, const NormalizerStep& step, std::string& out);
/// Removes nonspacing marks (Mn) or, with `all_marks`, all combining marks (Mn, Mc, Me).
void append_without_accents(std::string_view text, bool all_marks, std::string& out);
/// Unicode's lower case of each character, regardless of context: "Σ" always becomes "σ".
void append_lowercase(std::string_view text, std::string& out);
/// SentencePiece's nmt rule: removes some control characters, and replaces other white space by a space.
void append_nmt(std::string_view text, std::string& out);
/// The text without white space at the chosen ends.
std::string_view stripped(std::string_view text, bool left, bool right);

/// Replaces the longest entry at each position by its form. Invalid UTF-8 bytes become U+FFFD, as in SentencePiece.
void append_charsmap(std::string_view text, const Charsmap& map, std::string& out);
/// Applies the map as Hugging Face does: a grapheme of less than 6 bytes is replaced by the form of its shortest entry;
/// otherwise its characters are replaced one by one.
void append_charsmap_graphemes(std::string_view text, const Charsmap& map, std::string& out);

}  // namespace lamina::text
