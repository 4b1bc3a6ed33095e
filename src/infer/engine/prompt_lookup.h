#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "lamina/text/tokenizer.h"

namespace lamina::infer {

/// Drafts tokens by prompt lookup (Saxena 2023): it finds the last earlier occurrence of the sequence's final n-gram
/// and proposes the tokens that followed it. The draft length follows the measured acceptance.
class PromptLookup {
 public:
  explicit PromptLookup(int64_t max_draft) : max_draft_(max_draft) {}

  /// Indexes the n-grams that are complete now. `tokens` is the whole sequence.
  void append(std::span<const text::TokenId> tokens);
  /// Up to `limit` tokens that may follow.
  std::vector<text::TokenId> draft(std::span<const text::TokenId> tokens, int64_t limit) const;
  /// Reports that `accepted` of `drafted` tokens were right.
  void measure(int64_t drafted, int64_t accepted);
  /// Tokens that the next draft may have; 0 while drafts are paused after failures.
  int64_t length() const;
  double acceptance() const { return acceptance_; }

 private:
  int64_t max_draft_;
  size_t indexed_ = 0;                         ///< n-grams that end before this position are in the index
  std::unordered_map<uint64_t, size_t> ends_;  ///< n-gram to the position after its last occurrence
  double acceptance_ = 0.6;                    ///< moving average of the probability that a drafted token is right
  int64_t pause_ = 0;                          ///< tokens to wait before the next draft
};

}  // namespace lamina::infer
