#pragma once

#include "lamina/ops/norm/residual_norm.h"

namespace lamina::ops {

struct RmsNormOptions {
  double eps = 1e-5;
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

/// Residual addition and norm, fused: h = x + residual, y = rms_norm(h).
ResidualNorm add_rms_norm(const Tensor& x, const Tensor& residual, const Tensor& weight,
                          const RmsNormOptions& options = {});

/// Kernel arguments. `scale` is weight + offset in the accumulation type (on a GPU x's dtype is allowed), or undefined.
struct RmsNormForward {
  Tensor x;
  Tensor residual;  ///< undefined: no addition
  Tensor scale;     ///< [width]
  double eps;
  int64_t group_size;
  Tensor h;  ///< x + residual, output if residual is defined
  Tensor y;
  Tensor r;  ///< [rows · groups], 1/rms, accumulation type
};
struct RmsNormBackward {
  Tensor x;  ///< input of the norm
  Tensor scale;
  Tensor r;
  Tensor dy;
  Tensor dh;  ///< additional gradient of h, or undefined
  int64_t group_size;
  Tensor dx;
  Tensor dweight;  ///< [width], accumulation type, or undefined
};

namespace cpu {
void rms_norm_forward(const RmsNormForward& args);
void rms_norm_backward(const RmsNormBackward& args);
}  // namespace cpu
namespace cuda {
void rms_norm_forward(const RmsNormForward& args);
void rms_norm_backward(const RmsNormBackward& args);
}  // namespace cuda

}  // namespace lamina::ops
