#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "lamina/text/merge_table.h"
#include "lamina/text/piece_encoder.h"
#include "lamina/text/spec.h"
#include "lamina/text/vocabulary.h"

namespace lamina::text {

/// Byte pair encoding (Sennrich, Haddow & Birch 2016). A piece starts as bytes or characters. The neighbors whose merge
/// has the lowest rank are merged, until no pair has a merge.
///
/// Most pieces are vocabulary entries, and merging would give exactly that entry. The first lookup of an entry verifies
/// this and stores the answer, so that later such pieces cost a single lookup. All other pieces are merged each time.
/// There is no cache that threads share or that grows with the text.
class Bpe : public PieceEncoder {
 public:
  Bpe(const TokenizerSpec& spec, const std::string& name);

  /// Appends the ids of one piece. A character-level vocabulary accepts any text as a piece: the text is cut before
  /// each space (`spec.space`), unless an entry could span the cut, so the result does not change. `unknown`: see
  /// Tokenizer::encode.
  void encode(std::string_view piece, std::vector<TokenId>& ids, UnknownCharacters* unknown) const override;
  TokenId find(std::string_view entry) const override { return vocabulary_.find(entry); }

 private:
  struct Symbol;
  enum class Whole : uint8_t { unknown, yes, no };

  void encode_word(std::string_view word, std::vector<TokenId>& ids, UnknownCharacters* unknown) const;
  void merge_word(std::string_view word, std::vector<TokenId>& ids, UnknownCharacters* unknown) const;
  void merge_short(std::vector<TokenId>& ids, size_t from) const;
  void merge_long(std::vector<TokenId>& ids, size_t from) const;
  void append_symbols(std::string_view word, std::vector<TokenId>& ids, UnknownCharacters* unknown) const;
  void append_unknown(std::string_view character, std::vector<TokenId>& ids, bool& follows_unknown,
                      UnknownCharacters* unknown) const;
  void find_joins(const TokenizerSpec& spec);

  std::string name_;
  Symbols symbols_;
  std::string space_;
  std::optional<TokenId> unknown_;
  bool fuse_unknown_;
  bool byte_fallback_;
  Vocabulary vocabulary_;
  MergeTable merges_;
  std::array<TokenId, 256> byte_ids_;
  std::array<bool, 256> joins_space_{};                  // whether some entry contains this byte followed by a space
  mutable std::unique_ptr<std::atomic<Whole>[]> whole_;  // per id: whether merging its bytes gives this entry
};

}  // namespace lamina::text
