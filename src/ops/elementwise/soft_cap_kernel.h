#pragma once

#include "lamina/ops/elementwise/soft_cap.h"

// Kernels of soft_cap(). All tensors have the same shape and dtype.

namespace lamina::ops {

namespace cpu {
void soft_cap_forward(const Tensor& x, double cap, const Tensor& y);
void soft_cap_backward(const Tensor& x, const Tensor& dy, double cap, const Tensor& dx);
}  // namespace cpu
namespace cuda {
void soft_cap_forward(const Tensor& x, double cap, const Tensor& y);
void soft_cap_backward(const Tensor& x, const Tensor& dy, double cap, const Tensor& dx);
}  // namespace cuda

}  // namespace lamina::ops
