#pragma once

#include "lamina/tensor/tensor.h"

namespace lamina::ops {

/// y = cap · tanh(x / cap): close to x for small |x|, bounded by ±cap. Bello et al. 2016, arXiv:1611.09940.
///   x, y  any shape, any floating type; cap > 0
/// Computed in f32 (f64 for f64). Backward, from the saved x: dx = dy · (1 − tanh²(x / cap)).
Tensor soft_cap(const Tensor& x, double cap);

}  // namespace lamina::ops
