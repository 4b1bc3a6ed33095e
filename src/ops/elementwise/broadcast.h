#pragma once

#include "lamina/tensor/tensor.h"

// Broadcasting as in NumPy and PyTorch: shapes are aligned at the end, and extents of 1 repeat.
namespace lamina::ops {

/// The common shape of two operands; throws an Error that names `op` if they do not broadcast.
Shape broadcast_shape(const char* op, const Shape& a, const Shape& b);

/// `shape` with leading ones up to `rank`.
Shape pad_rank(const Shape& shape, int rank);

/// Strides with which a contiguous operand of `shape`'s rank is read as if it had `shape`; 0 along broadcast
/// dimensions.
Shape broadcast_strides(const Tensor& operand, const Shape& shape);

/// alpha · x broadcast to `shape`. Not recorded on a tape, so it has no gradient.
Tensor expand(const Tensor& x, const Shape& shape, double alpha);

/// The gradient of an operand of `shape` that was broadcast to grad's shape: grad summed over the broadcast dimensions.
/// The result has grad's dtype if nothing was broadcast, else the accumulation type.
Tensor sum_to(const Tensor& grad, const Shape& shape);

}  // namespace lamina::ops
