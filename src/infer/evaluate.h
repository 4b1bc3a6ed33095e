#pragma once

#include <functional>
#include <span>
#include <vector>

#include "lamina/nn/model.h"
#include "lamina/text/tokenizer.h"

namespace lamina::infer {

struct EvaluateOptions {
  int64_t context = 0;  ///< tokens read at once; 0: the architecture's context
  /// How far one window's beginning is behind the last one's; 0: the context, windows side by side. With less, every
  /// token but those of the first window is predicted from at least context − stride before it.
  int64_t stride = 0;
  /// Bounds of the numbers of tokens before the predicted one, by which losses are also told apart; empty: not at all.
  std::vector<int64_t> lengths;
  /// Told how many tokens of how many are done.
  std::function<void(int64_t done, int64_t all)> progress;
};

/// Of tokens with [begin, end) tokens before them in their window.
struct LengthLoss {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t tokens = 0;
  double loss = 0;  ///< mean, 0 without tokens
};

struct Evaluation {
  int64_t tokens = 0;  ///< predicted: all but the first
  double total = 0;    ///< −Σ log p, in nats
  std::vector<LengthLoss> by_length;

  double loss() const { return total / static_cast<double>(tokens); }
  double perplexity() const;
  /// total / ln 2 / bytes, for text of that many bytes.
  double bits_per_byte(int64_t bytes) const;
};

/// How well a model predicts `ids`: each token but the first once, from the tokens before it in its window. Windows
/// begin at 0, stride, 2·stride …, and each counts the tokens that no window before it counted.
Evaluation evaluate(nn::Model& model, std::span<const text::TokenId> ids, const EvaluateOptions& options = {});

}  // namespace lamina::infer
