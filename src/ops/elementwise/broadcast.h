#pragma once

#include "lamina/tensor/tensor.h"

namespace lamina::ops {

/// The shape both broadcast to; an error naming `op` where they do not.
Shape broadcast_shape(const char* op, const Shape& a, const Shape& b);

/// `shape` with leading ones up to `rank`.
Shape pad_rank(const Shape& shape, int rank);

/// Strides of a dense operand of `shape`'s rank, zero where it is repeated.
Shape broadcast_strides(const Tensor& operand, const Shape& shape);

/// alpha · x repeated to `shape`, to which x broadcasts. No gradient is recorded.
Tensor expand(const Tensor& x, const Shape& shape, double alpha);

/// The gradient of a tensor of `shape` that was broadcast to grad's shape: summed over the repetitions. In grad's type
/// where nothing was repeated, else in its accumulation type.
Tensor sum_to(const Tensor& grad, const Shape& shape);

}  // namespace lamina::ops
