#pragma once

#include "lamina/nn/norm.h"
#include "lamina/ops/linear/norm_linear.h"

namespace lamina::nn {

/// The residual stream between sublayers: its value is x + branch. The addition is left to the norm that follows, which
/// does both in one pass over memory, and the product behind it, too, where rows are few.
struct Stream {
  Tensor x;
  Tensor branch;  ///< undefined: nothing is to be added

  /// Adds the branch, and gives the value.
  const Tensor& value();
  /// Adds the branch, and gives the norm of the value.
  Tensor normed(const NormLayer& norm);
  /// ops::linear and ops::gated_linear of normed(norm).
  Tensor normed_linear(const NormLayer& norm, const Tensor& weight, const Tensor& bias,
                       ops::Activation activation = ops::Activation::none);
  Tensor normed_gated_linear(const NormLayer& norm, const Tensor& weight, const Tensor& bias, ops::Gate gate,
                             const ops::GateOptions& options);
};

}  // namespace lamina::nn
