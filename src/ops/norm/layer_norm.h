#pragma once

#include "lamina/ops/norm/residual_norm.h"

namespace lamina::ops {

/// y = (x − μ) / sqrt(var + eps) · weight + bias; mean μ and (biased) variance are over the last dimension.
///   x             [..., width]  any floating type
///   weight, bias  [width]       any floating type, each optional
///   y             [..., width]  x's type
/// Computed in f32 (f64 for f64). The variance is computed around the mean, after the mean. Ba et al. 2016,
/// arXiv:1607.06450.
///
/// Backward, per row with r = 1/sqrt(var + eps), x̂ = (x − μ)·r, g = dy · weight:
///   dx = r · (g − mean(g) − x̂ · mean(g·x̂))        dweight = Σ_rows dy · x̂        dbias = Σ_rows dy
Tensor layer_norm(const Tensor& x, const Tensor& weight = {}, const Tensor& bias = {}, double eps = 1e-5);

/// Residual addition and norm in one pass: h = x + residual, y = layer_norm(h). Shapes and backward as in layer_norm().
ResidualNorm add_layer_norm(const Tensor& x, const Tensor& residual, const Tensor& weight = {}, const Tensor& bias = {},
                            double eps = 1e-5);

}  // namespace lamina::ops
