#pragma once

#include "lamina/tensor/tensor.h"

namespace lamina::ops {

/// Constants of xielu().
struct XieluOptions {
  double beta = 0.5;   ///< slope at 0; also the minimum of n
  double eps = -1e-6;  ///< upper limit of the argument of expm1, at most 0
};

/// xIELU, an activation with two learned scalars. With p = softplus(alpha_p) and n = beta + softplus(alpha_n):
///   y = p · x² + beta · x                              for x > 0
///   y = n · (expm1(min(x, eps)) − x) + beta · x        otherwise
///   x        any shape and floating type, computed in f32 (f64 for f64)
///   alpha_p  [1], alpha_n [1], any floating type
/// Huang & Schlag 2024, arXiv:2411.13010.
///
/// Backward:
///   dx = dy · (2p · x + beta) for x > 0, otherwise dy · (n · (exp(x) − 1) + beta); exp(x) is 0 for x >= eps
///   dalpha_p = σ(alpha_p) · Σ_{x > 0} dy · x²,   dalpha_n = σ(alpha_n) · Σ_{x <= 0} dy · (expm1(min(x, eps)) − x)
Tensor xielu(const Tensor& x, const Tensor& alpha_p, const Tensor& alpha_n, const XieluOptions& options = {});

}  // namespace lamina::ops
