#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lamina/text/tokenizer.h"

namespace lamina::text {

/// Options of train_bpe().
struct TrainOptions {
  int64_t vocab_size = 8192;                              ///< including the 256 bytes and the special tokens
  std::string pattern = "gpt2";                           ///< split pattern (patterns.h); merges never cross a split
  std::vector<std::string> specials = {"<|endoftext|>"};  ///< they get the last ids and are never part of a merge
  /// Number of tokens learned so far, and the total; may be empty.
  std::function<void(int64_t done, int64_t total)> progress;
};

/// Learns a byte-level BPE vocabulary: repeatedly merges the most frequent pair of neighbors into a new token. Among
/// equally frequent pairs, the one with the lower ids goes first, so the result is deterministic. Stops early if no
/// pair occurs twice.
std::unique_ptr<Tokenizer> train_bpe(const std::vector<std::string_view>& corpora, const TrainOptions& options = {});

}  // namespace lamina::text
