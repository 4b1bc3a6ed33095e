#pragma once

#include "lamina/ops/elementwise/soft_cap.h"

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
