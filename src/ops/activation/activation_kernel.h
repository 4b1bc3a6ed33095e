#pragma once

#include "lamina/ops/activation/activation.h"

// Kernels of activation(): y = f(x), and dx = dy · f'(x). All tensors have the same shape and dtype.

namespace lamina::ops {

namespace cpu {
void activation_forward(const Tensor& x, Activation function, const Tensor& y);
void activation_backward(const Tensor& x, const Tensor& dy, Activation function, const Tensor& dx);
}  // namespace cpu
namespace cuda {
void activation_forward(const Tensor& x, Activation function, const Tensor& y);
void activation_backward(const Tensor& x, const Tensor& dy, Activation function, const Tensor& dx);
}  // namespace cuda

}  // namespace lamina::ops
