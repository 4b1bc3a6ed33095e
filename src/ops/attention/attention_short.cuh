#pragma once

// Backward of short causal attention, a whole head of a row in a block.

#include "lamina/ops/attention/attention_scores.cuh"

namespace lamina::ops::cuda {

constexpr int kShortWidth = 64;

/// Angles by which queries and keys kShortWidth wide were rotated before, half with half: their gradients are rotated
/// back.
struct ShortRotation {
  static constexpr int kPairs = kShortWidth / 2;
  const float* cos;  // [seq, kPairs]; null where nothing was rotated
  const float* sin;
};

/// All gradients in one launch; `delta` and `base` are not read, and without `inverse` `greatest` is log Σ exp(score).
bool takes_short_backward(const AttentionParams& params, const Device& device);
template <class T>
void short_backward(const AttentionParams& params, const ShortRotation& rotation, const Device& device);

}  // namespace lamina::ops::cuda
