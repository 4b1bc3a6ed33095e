#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "lamina/text/tokenizer.h"

namespace lamina::infer {

/// Drafts tokens by prompt lookup (Saxena 2023): it finds the last earlier occurrence of the sequence's final n-gram
/// and proposes the tokens that followed it.
class PromptLookup {
 public:
  /// Indexes the n-grams that are complete now. `tokens` is the whole sequence.
  void append(std::span<const text::TokenId> tokens);
  /// Up to `limit` tokens that may follow.
  std::vector<text::TokenId> draft(std::span<const text::TokenId> tokens, int64_t limit) const;

 private:
  size_t indexed_ = 0;                         ///< n-grams that end before this position are in the index
  std::unordered_map<uint64_t, size_t> ends_;  ///< n-gram to the position after its last occurrence
};

}  // namespace lamina::infer
