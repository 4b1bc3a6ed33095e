#pragma once

// Softmax and sigmoid over one token's experts on a GPU: one warp per token, scores in shared memory.

#include <algorithm>

#include "lamina/ops/elementwise/elements.cuh"

namespace lamina::ops::cuda {

using lamina::cuda::kWarp;

/// Size of a block whose warps each need `words` 4-byte words of shared memory.
struct RouterBlock {
  int warps;
  size_t bytes;

  RouterBlock(const char* op, int64_t experts, int64_t words) {
    constexpr int64_t kShared = 48 * 1024 / 4;
    LAMINA_CHECK(words <= kShared, op, ": ", experts, " experts on a cuda device; expected at most about ", kShared / 2,
                 "; use the cpu for more");
    warps = static_cast<int>(std::clamp<int64_t>(kShared / std::max<int64_t>(words, 1), 1, 8));
    bytes = static_cast<size_t>(warps) * static_cast<size_t>(words) * 4;
  }
  int blocks(int64_t tokens) const { return lamina::cuda::blocks_for(tokens, warps); }
  int threads() const { return warps * kWarp; }
};

__device__ inline int lane_of() { return static_cast<int>(threadIdx.x) % kWarp; }
__device__ inline int warp_of() { return static_cast<int>(threadIdx.x) / kWarp; }

template <class T>
__device__ void load_row(const T* from, int64_t n, float* to) {
  for (int64_t i = lane_of(); i < n; i += kWarp) to[i] = lamina::cuda::to_float(from[i]);
  __syncwarp();
}

/// Softmax of n > 0 values in place; returns their log-sum-exp.
__device__ inline float softmax_in_place(float* values, int64_t n) {
  float most = -INFINITY;
  for (int64_t i = lane_of(); i < n; i += kWarp) most = fmaxf(most, values[i]);
  most = lamina::cuda::warp_max(most);
  float sum = 0;
  for (int64_t i = lane_of(); i < n; i += kWarp) {
    const float e = expf(values[i] - most);
    values[i] = e;
    sum += e;
  }
  sum = lamina::cuda::warp_sum(sum);
  for (int64_t i = lane_of(); i < n; i += kWarp) values[i] /= sum;
  __syncwarp();
  return most + logf(sum);
}

__device__ inline void sigmoid_in_place(float* values, int64_t n) {
  for (int64_t i = lane_of(); i < n; i += kWarp) {
    values[i] = lamina::cuda::sigmoid_pair<float>(values[i]).at_x;
  }
  __syncwarp();
}

}  // namespace lamina::ops::cuda
