#pragma once

#include "lamina/ops/norm/residual_norm.h"

namespace lamina::ops {

/// Options of rms_norm().
struct RmsNormOptions {
  double eps = 1e-5;  ///< added to the mean square
  /// Number of elements that share one RMS; 0 means the whole last dimension. Must divide it.
  int64_t group_size = 0;
  /// The scale is weight + weight_offset; use 1 for models that store γ − 1.
  double weight_offset = 0.0;
};

/// y = x / sqrt(mean(x²) + eps) · (weight + weight_offset); the mean is over each group of the last dimension.
///   x       [..., width]   any floating type
///   weight  [width]        any floating type, or undefined for no scale
///   y       [..., width]   x's type
/// Computed in f32 (f64 for f64). Zhang & Sennrich 2019, arXiv:1910.07467.
///
/// Backward, per group of size n with r = 1/sqrt(mean(x²) + eps), g = dy · scale:
///   dx = r · g − x · r³ · Σ(g·x) / n        dweight = Σ_rows dy · x · r
Tensor rms_norm(const Tensor& x, const Tensor& weight, const RmsNormOptions& options = {});

/// Residual addition and norm in one pass: h = x + residual, y = rms_norm(h). residual has x's shape and type.
ResidualNorm add_rms_norm(const Tensor& x, const Tensor& residual, const Tensor& weight,
                          const RmsNormOptions& options = {});

}  // namespace lamina::ops
