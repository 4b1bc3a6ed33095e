#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lamina/text/tokenizer.h"

namespace lamina::text {

/// Options of train_wordpiece().
struct WordPieceOptions {
  int64_t vocab_size = 8192;          ///< including the special tokens
  bool lowercase = true;              ///< lower-case and strip accents, like uncased BERT
  int64_t min_count = 2;              ///< minimum number of occurrences of a pair for a merge
  std::vector<std::string> specials;  ///< additional special tokens, with the last ids
  /// Number of tokens learned so far, and the total; may be empty.
  std::function<void(int64_t done, int64_t total)> progress;
};

/// Learns a WordPiece vocabulary (Schuster & Nakajima 2012), with BERT's normalizer and split. [PAD], [UNK], [CLS],
/// [SEP] and [MASK] come first, then the characters of the text. Repeatedly merges the pair of neighbors with the
/// highest count(pair) · log(count(pair) · n / (count(left) · count(right))), where n is the number of characters. This
/// merge raises the log-likelihood of the text under independent symbols the most. Ties go to the more frequent pair,
/// then to the lower ids, so the result is deterministic.
std::unique_ptr<Tokenizer> train_wordpiece(const std::vector<std::string_view>& corpora,
                                           const WordPieceOptions& options = {});

}  // namespace lamina::text
