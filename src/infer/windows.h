#pragma once

#include <functional>
#include <span>
#include <vector>

#include "lamina/infer/evaluate.h"

namespace lamina::infer {

/// A window reads ids[begin, begin + length). Only predictions at positions ≥ `first` count.
struct Window {
  int64_t begin;
  int64_t length;
  int64_t first;
};

/// Windows of equal length that were computed together.
struct WindowBatch {
  std::span<const Window> windows;
  Tensor states;                 ///< [windows · length, d_model]: final hidden states
  std::vector<int64_t> targets;  ///< [windows · length]: the token after each position

  /// Position in its window.
  int64_t position(size_t row) const { return static_cast<int64_t>(row) % windows[0].length; }
  /// Whether the prediction counts, because no earlier window counted it.
  bool is_counted(size_t row) const {
    return position(row) >= windows[row / static_cast<size_t>(windows[0].length)].first;
  }
};

/// Runs the model over the windows of evaluate(), and calls `take` for each batch, in order. Throws an Error for
/// options or tokens that the model does not support. Calls options.progress after each batch.
void each_window_batch(nn::Model& model, std::span<const text::TokenId> ids, const EvaluateOptions& options,
                       const std::function<void(const WindowBatch&)>& take);

}  // namespace lamina::infer
