#pragma once

#include "lamina/ops/linear/feed_forward.h"
#include "lamina/ops/linear/norm_linear.h"

namespace lamina::ops {

/// Result of a sublayer that adds to the residual stream.
struct SublayerOutput {
  Tensor h;      ///< x + residual, the residual stream before the sublayer's own output is added
  Tensor parts;  ///< [n, ..., width]: the output of the sublayer is the sum of these n parts, in order
};

/// A whole feed-forward sublayer for decoding: h = x + residual, Σ parts = feed_forward(norm(h), weights, activation).
///   x [..., width], residual, norm   as in norm_linear; the output is as wide as x
/// For one f32 row without gradient, a GPU with thread block clusters (compute capability 9.0) runs it in one launch if
/// the bf16 weights fit the shared memory of all SMs. Each cluster then yields one part. The weights are prefetched, so
/// the kernel launched just before must not write them. Otherwise norm_linear() and linear() run one after the other
/// or, if a gradient is tracked, the norm and feed_forward(); the output is then a single part.
SublayerOutput feed_forward_step(const Tensor& x, const Tensor& residual, const RowNorm& norm,
                                 const FeedForwardWeights& weights, Activation activation);
/// feed_forward_step() with gated_linear() as the first product; weights.up holds the rows of the gate, then those of
/// up.
SublayerOutput gated_feed_forward_step(const Tensor& x, const Tensor& residual, const RowNorm& norm,
                                       const FeedForwardWeights& weights, Gate gate, const GateOptions& options = {});

}  // namespace lamina::ops
