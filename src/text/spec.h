#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lamina/text/tokenizer.h"

namespace lamina::text {

/// A tokenizer as data: every file format is read into this, the one implementation is made from it, and tokenizer.json
/// is written from it. Text goes through it in this order: added tokens are cut out, the rest is normalised, given its
/// prefix, split into pieces, and each piece is merged.

/// What merging starts from.
enum class Symbols { bytes, characters };

struct VocabEntry {
  enum class Kind {
    absent,    ///< no token has this id
    ordinary,  ///< text can become this
    byte,      ///< one byte of a character that is in no other entry, "<0x0A>"
    opaque,    ///< listed, but no text becomes this: a control token, or no bytes' name in a byte-level vocabulary
  };
  Kind kind = Kind::absent;
  std::string bytes;  ///< a byte-level entry as the bytes it stands for; otherwise as it is listed, with "▁"
};

/// Lower ranks first; of equal ranks the leftmost pair.
struct MergeRule {
  TokenId left = 0;
  TokenId right = 0;
  TokenId result = 0;
  int32_t rank = 0;
};

/// Found in the text before anything else is done to it.
struct AddedToken {
  TokenId id = 0;
  std::string content;
  bool special = true;      ///< only where the caller allows special tokens
  bool lstrip = false;      ///< takes the white space before it along
  bool rstrip = false;      ///< and behind it
  bool normalized = false;  ///< looked for after normalising instead
  std::string pattern;      ///< what is looked for, where that is not the content
};

struct NormalizerStep {
  enum class Kind { prepend, replace, nfc, nfd, nfkc, nfkd };
  Kind kind = Kind::nfc;
  std::string pattern;  ///< replace: this text …
  std::string content;  ///< … by this; prepend: this, before what is not empty
};

/// A space, or what stands for it, put before a text.
struct Prefix {
  enum class When { never, first, every_segment };
  When when = When::never;  ///< first: before the text alone; every_segment: also behind each added token
  std::string text;         ///< unless it is there already
};

/// Cuts pieces where the pattern matches.
struct SplitStep {
  enum class Behavior { isolated, removed, merged_with_previous, merged_with_next, contiguous };
  std::string pattern;
  bool literal = false;  ///< the pattern is the text itself, no regular expression
  Behavior behavior = Behavior::isolated;
  bool invert = false;  ///< the pattern is what lies between the matches
};

struct TokenizerSpec {
  Symbols symbols = Symbols::bytes;
  std::vector<VocabEntry> vocab;  ///< by id
  std::vector<MergeRule> merges;
  bool ignore_merges = false;  ///< a piece that is an entry is that entry, whatever merging would give
  bool byte_fallback = false;
  bool fuse_unknown = false;
  std::optional<TokenId> unknown;
  std::vector<AddedToken> added;
  std::vector<NormalizerStep> normalizers;
  Prefix prefix;
  std::vector<SplitStep> splits;
  std::string space;          ///< what entries hold for a space, "▁"; empty: a space
  bool strip_prefix = false;  ///< decoding takes the prefix away again
  std::optional<TokenId> bos;
  std::optional<TokenId> eos;
};

/// `name` stands in messages: the file it came from.
std::unique_ptr<Tokenizer> make_tokenizer(TokenizerSpec spec, const std::string& name);

/// The tokenizer.json of it.
std::string write_json(const TokenizerSpec& spec);

}  // namespace lamina::text
