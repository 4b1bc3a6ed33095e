#pragma once

// Functions in f32 that the scan kernels share: silu, softplus, and a sum over lanes.

#include "lamina/ops/elementwise/elements.cuh"

namespace lamina::ops::cuda {

__device__ inline float sigmoid(float x) { return lamina::cuda::sigmoid_pair<float>(x).at_x; }
__device__ inline float silu(float x) { return x * sigmoid(x); }
/// silu(x), accurate enough for a result of type T.
template <class T>
__device__ inline float silu_for(float x) {
  return x * lamina::cuda::sigmoid_pair<T>(x).at_x;
}
/// Derivative of silu(x) = x · σ(x).
template <class T>
__device__ inline float silu_slope_for(float x) {
  const lamina::cuda::SigmoidPair s = lamina::cuda::sigmoid_pair<T>(x);
  return s.at_x * fmaf(x, s.at_minus_x, 1.0F);
}
__device__ inline float silu_slope(float x) { return silu_slope_for<float>(x); }
/// log(1 + e^x) = max(x, 0) + log1p(e^-|x|); propagates NaN.
__device__ inline float softplus(float x) { return fmaxf(x, 0.0F) + log1pf(expf(-fabsf(x))); }

/// Sum over `group` adjacent lanes (a power of two), returned in each of them.
__device__ inline float group_sum(float value, int group) {
  for (int step = group / 2; step > 0; step /= 2) value += __shfl_xor_sync(lamina::cuda::kAllLanes, value, step);
  return value;
}

}  // namespace lamina::ops::cuda
