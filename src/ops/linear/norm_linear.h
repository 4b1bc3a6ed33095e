#pragma once

#include "lamina/ops/activation/gated_activation.h"
#include "lamina/ops/linear/linear_weight.h"
#include "lamina/ops/norm/rms_norm.h"

namespace lamina::ops {

/// A norm over the last dimension, with the parameters of rms_norm or layer_norm.
struct RowNorm {
  /// Which norm.
  enum class Kind : uint8_t { rms, layer };
  Kind kind = Kind::rms;   ///< which norm
  Tensor weight;           ///< [width], or undefined
  Tensor bias;             ///< [width], or undefined; layer norm only
  RmsNormOptions options;  ///< a layer norm uses only eps
};

/// Sums the parts [n, ..., in] of a residual for x [..., in]; a residual of x's rank is returned as it is.
Tensor sum_of_parts(const Tensor& residual, const Tensor& x);

/// h = x + residual, which may be in parts, and norm(h). Without a residual h is x.
ResidualNorm residual_norm(const Tensor& x, const Tensor& residual, const RowNorm& norm);

/// Result of norm_linear() and norm_gated_linear().
struct NormLinear {
  Tensor h;  ///< x + residual, dtype of x; x itself without a residual
  Tensor y;  ///< the projection of the norm of h
};

/// h = x + residual, y = project(norm(h), weight, bias, activation): the start of a pre-norm sublayer.
///   x            [..., in]    any floating type
///   residual     [..., in] of x's dtype, or [n, ..., in]: n partial outputs to be summed; may be undefined
///   weight, bias, y           as in linear or, for a quantized weight, quantized_linear
/// Composed of these operators. Without gradients, few short rows on a GPU take one launch; the normalised value is
/// rounded to x's dtype there, too.
NormLinear norm_linear(const Tensor& x, const Tensor& residual, const RowNorm& norm, const LinearWeight& weight,
                       const Tensor& bias = {}, Activation activation = Activation::none);

/// norm_linear() with y = project_gated(norm(h), weight, bias, gate, options).
NormLinear norm_gated_linear(const Tensor& x, const Tensor& residual, const RowNorm& norm, const LinearWeight& weight,
                             const Tensor& bias, Gate gate, const GateOptions& options = {});

}  // namespace lamina::ops
