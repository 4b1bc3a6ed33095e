#pragma once

#include "lamina/ops/activation/activation.h"
#include "lamina/tensor/tensor.h"

namespace lamina::ops {

/// The weights of an ungated feed-forward network (MLP): two linear layers.
struct FeedForwardWeights {
  Tensor up;         ///< [d_ff, in], any floating type
  Tensor up_bias;    ///< [d_ff], or undefined
  Tensor down;       ///< [out, d_ff]
  Tensor down_bias;  ///< [out], or undefined
};

/// Whether the hidden activations h are kept for backward.
enum class HiddenActivations : uint8_t {
  kept,        ///< h is kept for backward
  recomputed,  ///< backward computes h from z again: saves d_ff values per row, costs one more pass over them
};

/// A feed-forward network as one operator: y = linear(linear(x, up, up_bias, activation), down, down_bias)
///   x  [..., in]    any floating type
///   y  [..., out]   dtype of x
/// With h the hidden activations, z the argument of the activation, and dz = (dy · down) · act'(z), backward is
///   ddown = dyᵀ · h    ddown_bias = Σ_rows dy    dup = dzᵀ · x    dup_bias = Σ_rows dz    dx = dz · up
/// On a GPU in bf16 and f16, gelu_tanh' is fused into the GEMM that computes dz. So dy · down is neither rounded to 16
/// bits nor written to memory.
Tensor feed_forward(const Tensor& x, const FeedForwardWeights& weights, Activation activation,
                    HiddenActivations hidden = HiddenActivations::kept);

}  // namespace lamina::ops
