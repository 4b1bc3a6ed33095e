#pragma once

#include "lamina/tensor/tensor.h"

namespace lamina::ops {

/// y = factor · exp(x); state space models use factor −1 to keep decay rates negative.
///   x, y  any shape, any floating type
/// Computed in f32 (f64 for f64). Backward, from the saved x: dx = dy · factor · exp(x).
Tensor scaled_exp(const Tensor& x, double factor);

}  // namespace lamina::ops
