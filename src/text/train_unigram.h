#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lamina/text/tokenizer.h"

namespace lamina::text {

/// Options of train_unigram().
struct UnigramOptions {
  int64_t vocab_size = 8192;  ///< including the special tokens and the fallback bytes
  /// Adds 256 tokens: a character that no piece covers is encoded as its UTF-8 bytes.
  bool byte_fallback = false;
  std::vector<std::string> specials;  ///< additional special tokens, with the last ids
  /// Number of pieces pruned so far, and the total; may be empty.
  std::function<void(int64_t done, int64_t total)> progress;
};

/// Learns a Unigram vocabulary (Kudo 2018, arXiv:1804.10959, like SentencePiece). Starts from the most frequent
/// substrings of words, estimates their probabilities by EM, and repeatedly removes the pieces that contribute least to
/// the likelihood, until vocab_size is reached. Single characters stay. `<pad>`, `</s>` and `<unk>` come first. Text is
/// normalized to NFKC with single spaces, and "▁" marks the start of a word. Deterministic.
std::unique_ptr<Tokenizer> train_unigram(const std::vector<std::string_view>& corpora,
                                         const UnigramOptions& options = {});

}  // namespace lamina::text
