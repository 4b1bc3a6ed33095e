#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "lamina/infer/chunk_retriever.h"
#include "lamina/nn/model.h"
#include "lamina/text/tokenizer.h"

namespace lamina::infer {

class KnnLm;

/// How a text is divided into windows, and what is reported.
struct EvaluateOptions {
  int64_t context = 0;  ///< tokens per window; 0: the architecture's context
  /// Distance between the starts of consecutive windows. 0: the context, so that windows do not overlap. With a smaller
  /// stride, every token after the first window is predicted from at least context − stride tokens.
  int64_t stride = 0;
  /// Bounds of buckets by number of preceding tokens, for losses by length. Empty: no buckets.
  std::vector<int64_t> lengths;
  /// Neighbours with which predictions are interpolated (infer/knn.h). Null: none.
  std::shared_ptr<const KnnLm> knn;
  /// Finds the neighbours of each window's chunks, for a model with retrieval. Empty: no neighbours.
  NeighboursOf neighbours;
  /// Called with the number of tokens done, and the total.
  std::function<void(int64_t done, int64_t all)> progress;
};

/// Loss of the tokens that have [begin, end) preceding tokens in their window.
struct LengthLoss {
  int64_t begin = 0;   ///< smallest number of preceding tokens
  int64_t end = 0;     ///< one past the largest
  int64_t tokens = 0;  ///< predicted tokens in this bucket
  double loss = 0;     ///< mean loss; 0 if there are no tokens
};

/// Result of evaluate().
struct Evaluation {
  int64_t tokens = 0;                 ///< predicted tokens: all except the first
  double total = 0;                   ///< −Σ log p, in nats
  std::vector<LengthLoss> by_length;  ///< one entry per bucket of EvaluateOptions::lengths

  /// Mean negative log-likelihood per token, in nats.
  double loss() const { return total / static_cast<double>(tokens); }
  double perplexity() const;  ///< exp(loss())
  /// Bits per byte, for a text of that many bytes: total / ln 2 / bytes.
  double bits_per_byte(int64_t bytes) const;
};

/// Measures how well a model predicts `ids`. Each token except the first is predicted once, from the tokens before it
/// in its window. Windows begin at 0, stride, 2·stride, …; each counts only the tokens that no earlier window counted.
Evaluation evaluate(nn::Model& model, std::span<const text::TokenId> ids, const EvaluateOptions& options = {});

}  // namespace lamina::infer
