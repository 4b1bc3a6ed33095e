#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "lamina/text/tokenizer.h"

namespace lamina::infer {

/// Drafts tokens by prompt lookup (Saxena 2023): finds the last earlier occurrence of the sequence's final n-gram, and
/// proposes the tokens that followed it.
class PromptLookup {
 public:
  /// Indexes the n-grams that are complete by now. `tokens` is the whole sequence.
  void append(std::span<const text::TokenId> tokens);
  /// Up to `limit` proposed tokens.
  std::vector<text::TokenId> draft(std::span<const text::TokenId> tokens, int64_t limit) const;

 private:
  size_t indexed_ = 0;                         ///< n-grams that end before this position are indexed
  std::unordered_map<uint64_t, size_t> ends_;  ///< n-gram → position after its last occurrence
};

}  // namespace lamina::infer
