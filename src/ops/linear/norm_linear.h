#pragma once

#include "lamina/ops/activation/gated_activation.h"
#include "lamina/ops/linear/linear_weight.h"
#include "lamina/ops/norm/rms_norm.h"

namespace lamina::ops {

/// A norm over the last dimension, with the parameters of rms_norm() or layer_norm().
struct RowNorm {
  /// Which norm.
  enum class Kind : uint8_t { rms, layer };
  Kind kind = Kind::rms;   ///< which norm
  Tensor weight;           ///< [width], or undefined
  Tensor bias;             ///< [width], or undefined; layer norm only
  RmsNormOptions options;  ///< layer norm uses only eps
};

/// Sums a residual given as parts [n, ..., in], for x [..., in]. A residual with x's rank is returned as it is.
Tensor sum_of_parts(const Tensor& residual, const Tensor& x);

/// Returns h = x + residual and norm(h). The residual may be in parts; if it is undefined, h is x.
ResidualNorm residual_norm(const Tensor& x, const Tensor& residual, const RowNorm& norm);

/// Result of norm_linear() and norm_gated_linear().
struct NormLinear {
  Tensor h;  ///< x + residual, dtype of x; x itself without a residual
  Tensor y;  ///< the projection of the norm of h
};

/// The start of a pre-norm sublayer: h = x + residual, y = project(norm(h), weight, bias, activation).
///   x            [..., in]    any floating type
///   residual     x's shape and dtype; or [n, ..., in], n parts that are summed; or undefined
///   weight, bias, y           as in linear() or, for a quantized weight, quantized_linear()
/// On a GPU, few short rows without gradients take one launch. Otherwise these operators run one after the other. In
/// both cases the normalized value is rounded to x's dtype.
NormLinear norm_linear(const Tensor& x, const Tensor& residual, const RowNorm& norm, const LinearWeight& weight,
                       const Tensor& bias = {}, Activation activation = Activation::none);

/// norm_linear() with y = project_gated(norm(h), weight, bias, gate, options).
NormLinear norm_gated_linear(const Tensor& x, const Tensor& residual, const RowNorm& norm, const LinearWeight& weight,
                             const Tensor& bias, Gate gate, const GateOptions& options = {});

}  // namespace lamina::ops
