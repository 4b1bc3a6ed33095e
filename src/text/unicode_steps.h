#pragma once

#include <string>
#include <string_view>

#include "lamina/text/charsmap.h"
#include "lamina/text/spec.h"

namespace lamina::text {

// Normalizer steps that work on single characters. They append to `out`; invalid UTF-8 bytes stay unchanged unless
// stated otherwise.

/// Unicode property White_Space.
bool is_white_space(char32_t c);

/// BERT's cleaning and CJK spacing. Clean text has no NUL, U+FFFD or control characters (Cc, Cf, Co), and plain spaces
/// for white space; invalid UTF-8 counts as U+FFFD. With `space_cjk` each CJK ideograph has a space on both sides.
void append_bert_cleaned(std::string_view text, const NormalizerStep& step, std::string& out);
/// Without nonspacing marks (Mn), or without all combining marks (Mn, Mc, Me).
void append_without_accents(std::string_view text, bool all_marks, std::string& out);
/// Unicode's lower case of each character, without context: "Σ" is "σ" everywhere.
void append_lowercase(std::string_view text, std::string& out);
/// SentencePiece's nmt rule: some control characters vanish, other white space becomes a space.
void append_nmt(std::string_view text, std::string& out);
/// The text without white space at the chosen ends.
std::string_view stripped(std::string_view text, bool left, bool right);

/// The longest entry at each position is replaced by its form. Invalid UTF-8 bytes become U+FFFD, as in SentencePiece.
void append_charsmap(std::string_view text, const Charsmap& map, std::string& out);
/// Hugging Face's way: a grapheme below 6 bytes is replaced by the form of its shortest entry; otherwise each of its
/// characters is replaced by itself.
void append_charsmap_graphemes(std::string_view text, const Charsmap& map, std::string& out);

}  // namespace lamina::text
