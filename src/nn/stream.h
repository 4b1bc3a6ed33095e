#pragma once

#include "lamina/nn/norm.h"
#include "lamina/ops/linear/feed_forward_step.h"

namespace lamina::nn {

/// The residual stream between sublayers: its value is x + branch. The addition is left to the norm that follows, which
/// does both in one pass over memory, and the product behind it, too, where rows are few, or all of the next sublayer.
struct Stream {
  Tensor x;       ///< [batch, seq, width]
  Tensor branch;  ///< the same, or parts of it [n, batch, seq, width]; undefined: nothing is to be added

  /// Adds the branch, and gives the value.
  const Tensor& value();
  /// Goes on with what a sublayer has made of the stream, and gives its output, in parts.
  Tensor take(const ops::SublayerStep& step);
  /// Adds the branch, and gives the norm of the value.
  Tensor normed(const NormLayer& norm);
  /// ops::linear and ops::gated_linear of normed(norm).
  Tensor normed_linear(const NormLayer& norm, const Tensor& weight, const Tensor& bias,
                       ops::Activation activation = ops::Activation::none);
  Tensor normed_gated_linear(const NormLayer& norm, const Tensor& weight, const Tensor& bias, ops::Gate gate,
                             const ops::GateOptions& options);
};

}  // namespace lamina::nn
