#pragma once

#include "lamina/ops/activation/activation.h"
#include "lamina/tensor/tensor.h"

namespace lamina::ops {

/// y = act(x · weightᵀ + bias)
///   x       [..., in]    any floating type
///   weight  [out, in]    any floating type; f64 only together with x; may be the transpose of a matrix or a slice
///   bias    [out]        any floating type, or undefined
///   y       [..., out]   dtype of x
/// Accumulates in f32 (f64 for f64); bias and activation are fused into the product. With in = 0, y = act(bias).
///
/// Backward, with z the argument of act (saved in x's dtype if an activation is fused) and dz = dy · act'(z):
///   dx = dz · weight        dweight = dzᵀ · x        dbias = Σ_rows dz
/// dweight and dbias are in the accumulation type; dweight is written straight into the gradient buffer if that has
/// this type.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, Activation activation = Activation::none);

}  // namespace lamina::ops
