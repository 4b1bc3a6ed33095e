#pragma once

#include "lamina/nn/norm.h"
#include "lamina/ops/linear/feed_forward_step.h"

namespace lamina::nn {

/// The residual stream between sublayers. Its value is x + branch. The addition is deferred so that the next norm can
/// fuse it; with few rows, the next projection or even the whole next sublayer is fused, too.
struct ResidualStream {
  Tensor x;       ///< [batch, seq, width]
  Tensor branch;  ///< same shape, or unsummed parts [n_parts, batch, seq, width]; undefined: nothing to add

  /// Adds the branch and returns the sum.
  const Tensor& value();
  /// Replaces the residual stream by the one that a fused sublayer computed. Returns the sublayer's output, possibly in
  /// unsummed parts.
  Tensor take(const ops::SublayerOutput& step);
  /// Adds the branch and returns the norm of the sum.
  Tensor normed(const NormLayer& norm);
  /// ops::project and ops::project_gated on normed(norm), fused if possible.
  Tensor normed_linear(const NormLayer& norm, const ops::LinearWeight& weight, const Tensor& bias,
                       ops::Activation activation = ops::Activation::none);
  Tensor normed_gated_linear(const NormLayer& norm, const ops::LinearWeight& weight, const Tensor& bias, ops::Gate gate,
                             const ops::GateOptions& options);
};

}  // namespace lamina::nn
