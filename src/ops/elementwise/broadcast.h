#pragma once

#include "lamina/tensor/tensor.h"

namespace lamina::ops {

/// The common shape of a broadcast; throws an error naming `op` if there is none.
Shape broadcast_shape(const char* op, const Shape& a, const Shape& b);

/// `shape` with leading ones up to `rank`.
Shape pad_rank(const Shape& shape, int rank);

/// Strides of a contiguous operand of `shape`'s rank; zero along broadcast dimensions.
Shape broadcast_strides(const Tensor& operand, const Shape& shape);

/// alpha · x broadcast to `shape`. Not recorded on a tape.
Tensor expand(const Tensor& x, const Shape& shape, double alpha);

/// The gradient of a tensor of `shape` that was broadcast to grad's shape: grad summed over the repetitions. In grad's
/// dtype if nothing was repeated, else in the accumulation type.
Tensor sum_to(const Tensor& grad, const Shape& shape);

}  // namespace lamina::ops
