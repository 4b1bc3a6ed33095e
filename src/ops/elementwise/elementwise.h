#pragma once

#include <cstdint>

#include "lamina/tensor/tensor.h"

namespace lamina::ops {

// Element-wise sums and products of two tensors of one floating type, computed in f32 (f64 for f64). Shapes broadcast
// as in NumPy and PyTorch. The gradient of a broadcast operand is summed over the repetitions, in the accumulation
// type.

/// a + b.              Backward: da = dy, db = dy.
Tensor add(const Tensor& a, const Tensor& b);
/// a − b.              Backward: da = dy, db = −dy.
Tensor sub(const Tensor& a, const Tensor& b);
/// a + alpha · b.      Backward: da = dy, db = alpha · dy.
Tensor add_scaled(const Tensor& a, const Tensor& b, double alpha);
/// a · b.              Backward: da = dy · b, db = dy · a.
Tensor mul(const Tensor& a, const Tensor& b);
/// alpha · x.          Backward: dx = alpha · dy.
Tensor scale(const Tensor& x, double alpha);

}  // namespace lamina::ops
