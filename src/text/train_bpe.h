#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lamina/text/tokenizer.h"

namespace lamina::text {

struct TrainOptions {
  int64_t vocab_size = 8192;     ///< with the 256 bytes and the special tokens
  std::string pattern = "gpt2";  ///< how text is cut (patterns.h); merges never reach over a cut
  std::vector<std::string> specials = {"<|endoftext|>"};      ///< the last ids; never part of a merge
  std::function<void(int64_t done, int64_t total)> progress;  ///< tokens learned, of those asked for; may be empty
};

/// Byte-level byte pair encoding learned from text: the most frequent pair of neighbours becomes a token, again and
/// again. Of equally frequent pairs that with the lower ids goes first, so the same text always gives the same
/// vocabulary. Ends early when no pair occurs twice.
std::unique_ptr<Tokenizer> train_bpe(const std::vector<std::string_view>& corpora, const TrainOptions& options = {});

}  // namespace lamina::text
