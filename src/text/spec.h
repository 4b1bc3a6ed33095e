#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lamina/text/tokenizer.h"

namespace lamina::text {

/// A tokenizer as data. Every file format is read into this, the one implementation is built from it, and
/// tokenizer.json is written from it. Encoding extracts added tokens, normalizes the remaining text, adds the prefix,
/// splits it into pieces, and merges each piece.

/// The units from which merging starts.
enum class Symbols { bytes, characters };

struct VocabEntry {
  enum class Kind {
    absent,    ///< no token has this id
    ordinary,  ///< text can encode to this token
    byte,      ///< one byte, "<0x0A>", of a character that has no entry
    opaque,    ///< listed, but no text encodes to it: a control token, or an invalid byte-level name
  };
  Kind kind = Kind::absent;
  std::string bytes;  ///< the bytes of a byte-level entry; otherwise the entry as listed, with "▁"
};

/// The lowest rank merges first; among equal ranks the leftmost pair.
struct MergeRule {
  TokenId left = 0;
  TokenId right = 0;
  TokenId result = 0;
  int32_t rank = 0;
};

/// A token that is searched in the text before any other step.
struct AddedToken {
  TokenId id = 0;
  std::string content;
  bool special = true;      ///< matches only if the caller allows special tokens
  bool lstrip = false;      ///< includes the white space before it
  bool rstrip = false;      ///< includes the white space after it
  bool normalized = false;  ///< searched in the normalized text instead
  std::string pattern;      ///< the text to search; empty: the content
};

struct NormalizerStep {
  enum class Kind { prepend, replace, nfc, nfd, nfkc, nfkd };
  Kind kind = Kind::nfc;
  std::string pattern;  ///< replace: the text to replace
  std::string content;  ///< replace: the replacement; prepend: the text to add before a non-empty text
};

/// A space, or the character that stands for it, added before a text.
struct Prefix {
  enum class When { never, first, every_segment };
  When when = When::never;  ///< first: at the start only; every_segment: also after each added token
  std::string text;         ///< added unless it is already there
};

/// Splits pieces at the matches of the pattern.
struct SplitStep {
  enum class Behavior { isolated, removed, merged_with_previous, merged_with_next, contiguous };
  std::string pattern;
  bool literal = false;  ///< the pattern is plain text, not a regular expression
  Behavior behavior = Behavior::isolated;
  bool invert = false;  ///< the text between the matches counts as the match
};

struct TokenizerSpec {
  Symbols symbols = Symbols::bytes;
  std::vector<VocabEntry> vocab;  ///< by id
  std::vector<MergeRule> merges;
  bool ignore_merges = false;  ///< a piece that is an entry becomes that entry, without merging
  bool byte_fallback = false;
  bool fuse_unknown = false;
  std::optional<TokenId> unknown;
  std::vector<AddedToken> added;
  std::vector<NormalizerStep> normalizers;
  Prefix prefix;
  std::vector<SplitStep> splits;
  std::string space;          ///< stands for a space in entries, "▁"; empty: a plain space
  bool strip_prefix = false;  ///< decoding removes the prefix
  std::optional<TokenId> bos;
  std::optional<TokenId> eos;
};

/// `name` names the file in messages.
std::unique_ptr<Tokenizer> make_tokenizer(TokenizerSpec spec, const std::string& name);

/// Writes the spec as a tokenizer.json.
std::string write_json(const TokenizerSpec& spec);

}  // namespace lamina::text
