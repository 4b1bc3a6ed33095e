#pragma once

#include "lamina/tensor/tensor.h"

namespace lamina::ops {

// Sums are accumulated in f32 (f64 for f64), in blocks of a fixed size, then the blocks in blocks: the error grows with
// the logarithm of the count and the bits do not depend on the number of threads. (On a GPU blocks of rows are as large
// as its size makes them.)

/// Σ x over all elements: a tensor of rank 0 and x's type. Backward: dx = dy everywhere.
Tensor sum(const Tensor& x);
/// Σ x along `axis` (negative counts from the end), which is dropped from the shape.
Tensor sum(const Tensor& x, int axis);
/// The same divided by the number of elements summed, of which there must be one at least.
Tensor mean(const Tensor& x);
Tensor mean(const Tensor& x, int axis);

/// factor · Σ x over the axes first … last, which remain with extent 1, in the accumulation type. Records no gradient.
Tensor reduce(const Tensor& x, int first, int last, double factor);

/// out[o, i] = factor · Σ_k x[o, k, i] with x seen as [outer, count, inner]; out is in the accumulation type.
struct ReduceMiddle {
  Tensor x;
  int64_t outer, count, inner;
  double factor;
  Tensor out;
};

namespace cpu {
void reduce_middle(const ReduceMiddle& args);
}  // namespace cpu
namespace cuda {
void reduce_middle(const ReduceMiddle& args);
}  // namespace cuda

}  // namespace lamina::ops
