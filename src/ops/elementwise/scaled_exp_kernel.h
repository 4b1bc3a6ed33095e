#pragma once

#include "lamina/ops/elementwise/scaled_exp.h"

// Kernels of scaled_exp(). All tensors have the same shape and dtype.

namespace lamina::ops {

namespace cpu {
void scaled_exp_forward(const Tensor& x, double factor, const Tensor& y);
void scaled_exp_backward(const Tensor& x, const Tensor& dy, double factor, const Tensor& dx);
}  // namespace cpu
namespace cuda {
void scaled_exp_forward(const Tensor& x, double factor, const Tensor& y);
void scaled_exp_backward(const Tensor& x, const Tensor& dy, double factor, const Tensor& dx);
}  // namespace cuda

}  // namespace lamina::ops
