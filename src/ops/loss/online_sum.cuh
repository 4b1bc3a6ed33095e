#pragma once

#include "lamina/tensor/cuda/kernel.cuh"

namespace lamina::ops::cuda {

/// The maximum of the numbers a thread has met and Σ exp(x − maximum), in one pass. −inf adds nothing, also where it is
/// all there is; a NaN stays.
struct OnlineSum {
  float most = -INFINITY;
  float sum = 0.0F;

  __device__ void add(float x) {
    raise(x);
    if (x != -INFINITY) sum += expf(x - most);
  }
  /// A larger maximum from here on.
  __device__ void raise(float x) {
    if (x <= most) return;
    sum = sum == 0.0F ? 0.0F : sum * expf(most - x);
    most = x;
  }
  /// The sum in terms of a common maximum, not below this one.
  __device__ float sum_for(float common) const { return sum == 0.0F ? 0.0F : sum * expf(most - common); }
};

}  // namespace lamina::ops::cuda
