#pragma once

#include "lamina/ops/activation/activation.h"
#include "lamina/tensor/tensor.h"

namespace lamina::ops {

/// Linear layer with an optional fused activation: y = act(x · weightᵀ + bias)
///   x       [..., in]    any floating type
///   weight  [out, in]    any floating type; f64 only if x is f64; may be a slice or the transpose of a matrix
///   bias    [out]        any floating type, or undefined
///   y       [..., out]   dtype of x
/// Accumulates in f32 (f64 for f64); bias and activation are fused into the GEMM. With in = 0, y = act(bias).
///
/// Backward, with z = x · weightᵀ + bias (saved in x's dtype if there is an activation) and dz = dy · act'(z):
///   dx = dz · weight        dweight = dzᵀ · x        dbias = Σ_rows dz
/// dweight and dbias are in the accumulation type. If the gradient buffer has this type, dweight is written straight
/// into it.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, Activation activation = Activation::none);

}  // namespace lamina::ops
