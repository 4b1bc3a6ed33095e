#pragma once

#include "lamina/ops/activation/activation.h"
#include "lamina/tensor/tensor.h"

namespace lamina::ops {

/// The two layers of an ungated feed-forward network.
struct FeedForwardWeights {
  Tensor up;         ///< [d_ff, in], any floating type
  Tensor up_bias;    ///< [d_ff], or undefined
  Tensor down;       ///< [out, d_ff]
  Tensor down_bias;  ///< [out], or undefined
};

/// What the tape keeps of the hidden activations h.
enum class HiddenActivations : uint8_t {
  kept,        ///< backward reads h
  recomputed,  ///< backward computes h from z: d_ff values less per row, for one more pass over them
};

/// y = linear(linear(x, up, up_bias, activation), down, down_bias)
///   x  [..., in]    any floating type
///   y  [..., out]   dtype of x
/// Both operators are recorded as one. With h the hidden activations, z the argument of the activation, and
/// dz = (dy · down) · act'(z), backward is
///   ddown = dyᵀ · h    ddown_bias = Σ_rows dy    dup = dzᵀ · x    dup_bias = Σ_rows dz    dx = dz · up
/// On a GPU in bf16 and f16, gelu_tanh' is fused into the product that computes dz: dy · down is neither rounded nor
/// written to memory.
Tensor feed_forward(const Tensor& x, const FeedForwardWeights& weights, Activation activation,
                    HiddenActivations hidden = HiddenActivations::kept);

}  // namespace lamina::ops
