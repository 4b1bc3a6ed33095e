#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lamina::text {

using TokenId = int32_t;  ///< Number of a token in its vocabulary.

/// A readable description of a tokenizer.
struct Description {
  /// "bytes", "characters", "byte-level BPE", "BPE of characters", "WordPiece" or "Unigram", possibly with byte
  /// fallback.
  std::string kind;
  int64_t merges = 0;      ///< number of BPE merges
  std::string pattern;     ///< split pattern: a known name, or the expressions; empty: no split
  std::string normalizer;  ///< normalizer steps; empty: none
};

/// The characters of a text for which a vocabulary has no token.
struct UnknownCharacters {
  std::map<std::string, int64_t> counts;  ///< key: the bytes of the character
  bool replaced = false;                  ///< true: replaced by the unknown token; false: skipped

  /// Number of unknown characters.
  int64_t total() const {
    int64_t sum = 0;
    for (const auto& [character, count] : counts) sum += count;
    return sum;
  }
};

/// Converts text to token ids and back. Immutable: any number of threads may share one.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  /// The number of tokens. Ids are 0 … vocab_size() − 1.
  virtual int64_t vocab_size() const = 0;
  /// Appends the ids of `text`, which may be any bytes. Adds no BOS or EOS. Special tokens that are spelled out in the
  /// text ("<|endoftext|>") become their id only with `special`, so that untrusted text cannot forge them. A character
  /// outside the vocabulary is an Error if there is no unknown token. With `unknown`, it is counted there instead, and
  /// skipped or replaced by the unknown token.
  virtual void encode(std::string_view text, std::vector<TokenId>& ids, bool special = false,
                      UnknownCharacters* unknown = nullptr) const = 0;
  /// The bytes of a token sequence. decode(encode(text)) returns `text` if the vocabulary covers it, except for changes
  /// by the normalizer and the split: WordPiece drops white space.
  virtual std::string decode(std::span<const TokenId> ids) const = 0;
  /// The readable form of an entry, for listings: the token's text, or the name of a special token.
  virtual std::string token(TokenId id) const = 0;
  virtual bool is_special(TokenId id) const = 0;  ///< whether a token is special, such as the end of a text
  /// The id of exactly this vocabulary entry or special token. Empty if there is none.
  virtual std::optional<TokenId> id_of(std::string_view token) const = 0;

  /// The BOS token, if the tokenizer puts one before every text and between documents.
  virtual std::optional<TokenId> bos() const { return {}; }
  virtual std::optional<TokenId> eos() const { return {}; }  ///< The token that ends a text, if there is one.

  /// The token that a text ends with for the model: [SEP] of BERT, `</s>` of T5. Usually eos(). encode() does not add
  /// it.
  virtual std::optional<TokenId> appended() const { return {}; }

  /// A tokenizer.json that parse_tokenizer() can read, and Hugging Face's tokenizers library, too.
  virtual std::string to_json() const = 0;

  virtual Description describe() const { return {}; }  ///< Kind, merges, split pattern and normalizer.

  /// Returns the ids of `text`. An unknown character is an Error.
  std::vector<TokenId> encode(std::string_view text) const {
    std::vector<TokenId> ids;
    encode(text, ids);
    return ids;
  }
};

}  // namespace lamina::text
