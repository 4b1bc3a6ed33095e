#pragma once

#include "lamina/tensor/tensor.h"

namespace lamina::ops {

/// y = cap · tanh(x / cap): close to x for small |x|, bounded by ±cap. Bello et al. 2016, arXiv:1611.09940.
///   x, y  any shape, any floating type; cap > 0
/// Computed in f32 (f64 for f64). Backward, from the saved x: dx = dy · (1 − tanh²(x / cap)).
Tensor soft_cap(const Tensor& x, double cap);

namespace cpu {
void soft_cap_forward(const Tensor& x, double cap, const Tensor& y);
void soft_cap_backward(const Tensor& x, const Tensor& dy, double cap, const Tensor& dx);
}  // namespace cpu
namespace cuda {
void soft_cap_forward(const Tensor& x, double cap, const Tensor& y);
void soft_cap_backward(const Tensor& x, const Tensor& dy, double cap, const Tensor& dx);
}  // namespace cuda

}  // namespace lamina::ops
