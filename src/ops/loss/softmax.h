#pragma once

#include "lamina/tensor/tensor.h"

namespace lamina::ops {

/// Softmax: y = exp(x − max) / Σ exp(x − max) over the last dimension.
///   x, y  [..., width]   any floating type; computed in f32 (f64 for f64)
/// Backward: dx = y · (dy − Σ dy·y). A row of only −inf gives NaN (0/0).
Tensor softmax(const Tensor& x);

/// Logarithm of softmax(): y = x − max − log Σ exp(x − max) over the last dimension. Shapes and types as in softmax().
/// Backward: dx = dy − exp(y) · Σ dy.
Tensor log_softmax(const Tensor& x);

}  // namespace lamina::ops
