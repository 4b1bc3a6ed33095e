#pragma once

#include "lamina/tensor/tensor.h"

namespace lamina::ops {

/// y = min(max(x, low), high).
///   x, y  any shape, any floating type; low <= high
/// Backward, from the saved x: dx = dy if low <= x <= high, else 0.
Tensor clamp(const Tensor& x, double low, double high);

namespace cpu {
void clamp_forward(const Tensor& x, double low, double high, const Tensor& y);
void clamp_backward(const Tensor& x, const Tensor& dy, double low, double high, const Tensor& dx);
}  // namespace cpu
namespace cuda {
void clamp_forward(const Tensor& x, double low, double high, const Tensor& y);
void clamp_backward(const Tensor& x, const Tensor& dy, double low, double high, const Tensor& dx);
}  // namespace cuda

}  // namespace lamina::ops
