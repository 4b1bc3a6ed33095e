#pragma once

#include "lamina/tensor/tensor.h"

namespace lamina::ops {

// Hierarchical sums in f32 (f64 for f64): blocks of a fixed size, then blocks of block sums. The error grows with the
// logarithm of the count, and the result does not depend on the number of threads. On a GPU the block size of row sums
// depends on the device.

/// Σ x over all elements: a tensor of rank 0 with x's dtype. Backward: dx = dy everywhere.
Tensor sum(const Tensor& x);
/// Σ x along `axis` (negative counts from the end), which is removed from the shape.
Tensor sum(const Tensor& x, int axis);
/// sum() divided by the number of elements, which must be at least one.
Tensor mean(const Tensor& x);
Tensor mean(const Tensor& x, int axis);  ///< mean along `axis`, as in sum()

/// factor · Σ x over the axes first … last, kept with extent 1, in the accumulation type. Not recorded on a tape.
Tensor reduce(const Tensor& x, int first, int last, double factor);

}  // namespace lamina::ops
