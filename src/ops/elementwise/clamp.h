#pragma once

#include "lamina/tensor/tensor.h"

namespace lamina::ops {

/// y = min(max(x, low), high).
///   x, y  any shape, any floating type; low <= high
/// Backward, from the saved x: dx = dy if low <= x <= high, else 0.
Tensor clamp(const Tensor& x, double low, double high);

}  // namespace lamina::ops
