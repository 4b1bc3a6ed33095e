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
  int64_t vocab_size = 8192;          ///< including the special tokens and the fallback bytes
  bool byte_fallback = false;         ///< 256 more tokens: a character that no piece covers becomes its UTF-8 bytes
  std::vector<std::string> specials;  ///< further special tokens, with the last ids
  std::function<void(int64_t done, int64_t total)> progress;  ///< pieces pruned so far and in total; may be empty
};

/// Learns a Unigram vocabulary (Kudo 2018, arXiv:1804.10959, as SentencePiece does it): starts from the most frequent
/// substrings of words, estimates their probabilities by EM, and repeatedly removes the pieces whose loss costs the
/// least likelihood, until vocab_size is left. Single characters stay. `<pad>`, `</s>` and `<unk>` come first. Text is
/// normalized to NFKC with single spaces, and "▁" marks the start of a word. Deterministic.
std::unique_ptr<Tokenizer> train_unigram(const std::vector<std::string_view>& corpora,
                                         const UnigramOptions& options = {});

}  // namespace lamina::text
