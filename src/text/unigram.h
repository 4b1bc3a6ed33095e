#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lamina/text/byte_trie.h"
#include "lamina/text/piece_encoder.h"

namespace lamina::text {

/// Unigram language model (Kudo 2018, arXiv:1804.10959): finds the segmentation into entries with the highest sum of
/// log-probabilities, by Viterbi's algorithm. A character that no entry covers gets `unknown_score`. Unknown characters
/// become their bytes (with byte fallback), or one unknown token per run.
class Unigram : public PieceEncoder {
 public:
  Unigram(const TokenizerSpec& spec, const std::string& name);

  /// Any text is a valid piece. It is searched word by word: a cut before a space (`spec.space`) that no entry spans is
  /// part of every path, so memory stays small and the result is that of the whole text.
  void encode(std::string_view piece, std::vector<TokenId>& ids, UnknownCharacters* unknown) const override;
  TokenId find(std::string_view entry) const override { return entries_.find(entry); }

 private:
  template <class Score>
  void encode_as(std::string_view piece, std::vector<TokenId>& ids, UnknownCharacters* unknown) const;
  /// Appends the best path through `part`. The sum of scores starts at `score`; returns the sum at the end.
  template <class Score>
  Score best_path(std::string_view part, Score score, std::vector<TokenId>& ids, UnknownCharacters* unknown) const;
  void append_unknown_run(std::string_view run, std::vector<TokenId>& ids, UnknownCharacters* unknown) const;

  std::string name_;
  std::optional<TokenId> unknown_;
  bool byte_fallback_;
  bool fuse_unknown_;
  bool sums_in_f32_;
  std::string space_;  // empty: no cuts
  std::vector<double> scores_;
  double unknown_score_;
  ByteTrie entries_;
  std::array<TokenId, 256> byte_ids_;
  std::array<bool, 256> joins_space_{};  // whether some entry contains this byte followed by a space
};

}  // namespace lamina::text
