#pragma once

#include "lamina/tensor/cuda/kernel.cuh"

namespace lamina::ops::cuda {

/// Online softmax of one thread: keeps the maximum of x and Σ exp(x − maximum) in one pass. An x of −inf adds nothing,
/// even if all are −inf; NaN propagates.
struct OnlineSum {
  float most = -INFINITY;
  float sum = 0.0F;

  __device__ void add(float x) {
    raise(x);
    if (x != -INFINITY) sum += expf(x - most);
  }
  /// Raises the maximum to x if x is larger, rescaling the sum.
  __device__ void raise(float x) {
    if (x <= most) return;
    sum = sum == 0.0F ? 0.0F : sum * expf(most - x);
    most = x;
  }
  /// The sum relative to `common` instead of the own maximum; common must not be smaller.
  __device__ float sum_for(float common) const { return sum == 0.0F ? 0.0F : sum * expf(most - common); }
};

}  // namespace lamina::ops::cuda
