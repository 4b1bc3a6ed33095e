#pragma once

#include "lamina/ops/linear/feed_forward.h"
#include "lamina/ops/linear/norm_linear.h"

namespace lamina::ops {

/// Result of one sublayer on the residual stream.
struct SublayerOutput {
  Tensor h;      ///< x + residual, as in NormLinear
  Tensor parts;  ///< [n, ..., width]: the output of the sublayer is their sum, in order
};

/// A whole feed-forward sublayer: h = x + residual, Σ parts = feed_forward(norm(h), weights, activation).
///   x [..., width], residual, norm   as in norm_linear; the output is as wide as x
/// Composed of norm_linear and linear, or of the norm and feed_forward if a gradient is tracked; the output is then a
/// single part. For one f32 row without gradient, a GPU with thread block
/// clusters (compute capability 9) runs it in one launch if the bf16 weights fit the shared memory of all SMs. Each
/// cluster then yields one part, and the consumer sums them. The weights are prefetched: the kernel launched just
/// before must not write them.
SublayerOutput feed_forward_step(const Tensor& x, const Tensor& residual, const RowNorm& norm,
                                 const FeedForwardWeights& weights, Activation activation);
/// feed_forward_step() with gated_linear as the first product; weights.up holds gate and up stacked.
SublayerOutput gated_feed_forward_step(const Tensor& x, const Tensor& residual, const RowNorm& norm,
                                       const FeedForwardWeights& weights, Gate gate, const GateOptions& options = {});

}  // namespace lamina::ops
