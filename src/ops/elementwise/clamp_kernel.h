#pragma once

#include "lamina/ops/elementwise/clamp.h"

// Kernels of clamp(). All tensors have the same shape and dtype.

namespace lamina::ops {

namespace cpu {
void clamp_forward(const Tensor& x, double low, double high, const Tensor& y);
void clamp_backward(const Tensor& x, const Tensor& dy, double low, double high, const Tensor& dx);
}  // namespace cpu
namespace cuda {
void clamp_forward(const Tensor& x, double low, double high, const Tensor& y);
void clamp_backward(const Tensor& x, const Tensor& dy, double low, double high, const Tensor& dx);
}  // namespace cuda

}  // namespace lamina::ops
