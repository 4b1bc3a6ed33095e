#pragma once

#include "lamina/nn/norm.h"
#include "lamina/ops/linear/feed_forward_step.h"

namespace lamina::nn {

/// The residual stream between sublayers; its value is x + branch. The addition is deferred so that the next norm can
/// fuse it, for few rows together with the following projection or even the whole next sublayer.
struct ResidualStream {
  Tensor x;       ///< [batch, seq, width]
  Tensor branch;  ///< same shape, or unsummed parts [n_parts, batch, seq, width]; undefined: nothing to add

  /// Adds the branch and returns the sum.
  const Tensor& value();
  /// Continues with the residual stream that a fused sublayer returns; returns its output, possibly in unsummed parts.
  Tensor take(const ops::SublayerOutput& step);
  /// Adds the branch and returns the norm of the sum.
  Tensor normed(const NormLayer& norm);
  /// ops::project and ops::project_gated of normed(norm), fused if possible.
  Tensor normed_linear(const NormLayer& norm, const ops::LinearWeight& weight, const Tensor& bias,
                       ops::Activation activation = ops::Activation::none);
  Tensor normed_gated_linear(const NormLayer& norm, const ops::LinearWeight& weight, const Tensor& bias, ops::Gate gate,
                             const ops::GateOptions& options);
};

}  // namespace lamina::nn
