#pragma once

#include "lamina/base/function_kinds.h"
#include "lamina/tensor/tensor.h"

namespace lamina::ops {

using lamina::Activation;

/// y = f(x), element-wise; `none` returns x itself.
///   x, y  any shape, any floating type
/// Computed in f32 (f64 for f64). Backward, from the saved x: dx = dy · f'(x).
Tensor activation(const Tensor& x, Activation function);

namespace cpu {
void activation_forward(const Tensor& x, Activation function, const Tensor& y);
void activation_backward(const Tensor& x, const Tensor& dy, Activation function, const Tensor& dx);
}  // namespace cpu
namespace cuda {
void activation_forward(const Tensor& x, Activation function, const Tensor& y);
void activation_backward(const Tensor& x, const Tensor& dy, Activation function, const Tensor& dx);
}  // namespace cuda

}  // namespace lamina::ops
