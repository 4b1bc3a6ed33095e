#pragma once

#include "lamina/tensor/tensor.h"

namespace lamina::ops {

// Sums in f32 (f64 for f64), hierarchically: blocks of a fixed size are summed first, then the blocks' sums. The
// rounding error therefore grows with the logarithm of the count, and results do not depend on the number of threads.
// On a GPU the block size of sums over rows depends on the device.

/// Σ x over all elements: a tensor of rank 0 with x's dtype. Backward: dx = dy everywhere.
Tensor sum(const Tensor& x);
/// Σ x along `axis` (negative counts from the end), which is removed from the shape.
Tensor sum(const Tensor& x, int axis);
/// sum() divided by the number of elements, which must be at least one.
Tensor mean(const Tensor& x);
Tensor mean(const Tensor& x, int axis);  ///< mean along `axis`, as in sum()

/// factor · Σ x over the axes first … last, which stay in the shape with extent 1. The result has the accumulation
/// type. Not recorded on a tape, so it has no gradient.
Tensor reduce(const Tensor& x, int first, int last, double factor);

}  // namespace lamina::ops
