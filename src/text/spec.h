#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lamina/text/tokenizer.h"

namespace lamina::text {

/// A tokenizer as data. All file formats are read into this struct, the one implementation is built from it, and
/// tokenizer.json is written from it. Encoding a text extracts added tokens, normalizes the remaining text, adds the
/// prefix, splits the text into pieces, and encodes each piece.

/// The algorithm that turns a piece of text into vocabulary entries.
enum class Algorithm {
  bpe,        ///< merges neighbors by rank (bpe.h)
  wordpiece,  ///< greedy longest match (wordpiece.h)
  unigram,    ///< most probable segmentation (unigram.h)
};

/// The units from which merging starts.
enum class Symbols { bytes, characters };

/// An entry of a vocabulary.
struct VocabEntry {
  enum class Kind {
    absent,    ///< no token has this id
    ordinary,  ///< text can be encoded to this token
    byte,      ///< one byte ("<0x0A>") of a character that has no entry
    opaque,    ///< no text is encoded to it: a control token, or an invalid byte-level name
  };
  Kind kind = Kind::absent;
  std::string bytes;  ///< for a byte-level entry its bytes; otherwise the entry as listed, with "▁"
};

/// A merge of two neighbors. The lowest rank merges first; among equal ranks, the leftmost pair.
struct MergeRule {
  TokenId left = 0;
  TokenId right = 0;
  TokenId result = 0;
  int32_t rank = 0;
};

/// A token that is searched in the text before all other steps.
struct AddedToken {
  TokenId id = 0;
  std::string content;
  bool special = true;      ///< found only if the caller allows special tokens
  bool lstrip = false;      ///< includes the white space before it
  bool rstrip = false;      ///< includes the white space after it
  bool normalized = false;  ///< searched in the normalized text instead of the original one
  std::string pattern;      ///< the text to search; empty: same as the content
};

/// One step of normalization, applied to the whole text.
struct NormalizerStep {
  enum class Kind {
    prepend,
    replace,
    replace_regex,
    nfc,
    nfd,
    nfkc,
    nfkd,
    /// BERT's normalizer: cleans, adds spaces around CJK, strips accents, lower-cases (unicode_steps.h).
    bert,
    strip_accents,       ///< removes combining marks
    lowercase,           ///< character by character
    strip,               ///< removes white space at the ends
    nmt,                 ///< removes control characters; replaces other white space by a space
    charsmap,            ///< SentencePiece's precompiled map; replaces the longest match at each position
    charsmap_graphemes,  ///< the same map, applied grapheme by grapheme as in Hugging Face's library
  };
  Kind kind = Kind::nfc;
  std::string pattern;  ///< replace: the text or expression to replace
  std::string content;  ///< replace: the replacement; prepend: the text to add before a non-empty text; charsmap: bytes
  // bert uses all four flags. strip uses `left` and `right`.
  bool clean_text = true;
  bool space_cjk = true;
  bool strip_accents = true;
  bool lowercase = true;
  bool left = true;
  bool right = true;
};

/// A space, or the character that represents it, that is added before a text.
struct Prefix {
  enum class When { never, first, every_segment, every_piece };
  /// first: only at the start; every_segment: also after each added token; every_piece: before each piece of the split.
  When when = When::never;
  std::string text;  ///< not added if it is already there
};

/// Splits pieces at the matches of a pattern.
struct SplitStep {
  enum class Behavior { isolated, removed, merged_with_previous, merged_with_next, contiguous };
  std::string pattern;
  bool literal = false;  ///< the pattern is plain text, not a regular expression
  Behavior behavior = Behavior::isolated;
  bool invert = false;  ///< treats the text between the matches as the matches
  bool operator==(const SplitStep&) const = default;
};

/// Everything that determines a tokenizer.
struct TokenizerSpec {
  Algorithm algorithm = Algorithm::bpe;
  Symbols symbols = Symbols::bytes;
  std::vector<VocabEntry> vocab;  ///< indexed by id
  std::vector<MergeRule> merges;
  std::vector<double> scores;  ///< unigram: log-probability per id
  double unknown_score = 0;    ///< unigram: log-probability of a character that no entry covers
  bool sums_in_f32 = false;    ///< unigram: sum scores in f32, as SentencePiece does, instead of f64
  std::string continuation;    ///< wordpiece: prefix of entries that continue a word, "##"
  int64_t longest_word = 100;  ///< wordpiece: a word with more characters is unknown
  bool cleanup = false;        ///< wordpiece: decoding removes the space before ". , ! ?" and similar
  bool ignore_merges = false;  ///< a piece that is an entry is encoded as that entry, without merging
  bool byte_fallback = false;
  bool fuse_unknown = false;
  std::optional<TokenId> unknown;
  std::vector<AddedToken> added;
  std::vector<NormalizerStep> normalizers;
  Prefix prefix;
  std::vector<SplitStep> splits;
  std::string space;          ///< represents a space in entries, "▁"; empty: a plain space
  bool strip_prefix = false;  ///< decoding removes the prefix
  std::optional<TokenId> bos;
  std::optional<TokenId> eos;
  std::optional<TokenId> appended;  ///< what the post-processor puts after a text, as [SEP] or </s> of encoders
};

/// Builds the tokenizer. `name` is the file's name in messages.
std::unique_ptr<Tokenizer> make_tokenizer(TokenizerSpec spec, const std::string& name);

/// Writes the spec as a tokenizer.json.
std::string write_json(const TokenizerSpec& spec);

}  // namespace lamina::text
