#pragma once

// Sums and thresholds of probabilities over a thread block, for kernels that sample.

#include "lamina/tensor/cuda/kernel.cuh"

namespace lamina::ops::cuda::sampling {

using namespace lamina::cuda;  // NOLINT: kernel helpers

/// Probabilities are integers in units of 2^-40, so that their sums do not depend on the order.
using Mass = unsigned long long;
constexpr float kMassUnit = 0x1p40F;

/// Threads of a block that calls these functions: one lane reads each warp's number.
constexpr int kMassThreads = kWarp * kWarp;

template <class V>
__device__ inline V warp_total(V value) {
  for (int step = kWarp / 2; step > 0; step /= 2) value += __shfl_xor_sync(kAllLanes, value, step);
  return value;
}
__device__ inline Mass warp_largest(Mass value) {
  for (int step = kWarp / 2; step > 0; step /= 2) value = max(value, __shfl_xor_sync(kAllLanes, value, step));
  return value;
}

/// Sums kCount values over the block, returned in every thread; `scratch` holds kCount · 32 numbers.
template <int kCount>
__device__ inline void block_totals(Mass (&values)[kCount], Mass* scratch) {
#pragma unroll
  for (int n = 0; n < kCount; ++n) {
    values[n] = warp_total(values[n]);
    if (threadIdx.x % kWarp == 0) scratch[n * kWarp + threadIdx.x / kWarp] = values[n];
  }
  __syncthreads();
#pragma unroll
  for (int n = 0; n < kCount; ++n) values[n] = warp_total(scratch[n * kWarp + threadIdx.x % kWarp]);
  __syncthreads();
}
__device__ inline Mass block_total(Mass value, Mass* scratch) {
  Mass values[1] = {value};
  block_totals(values, scratch);
  return values[0];
}
__device__ inline Mass block_largest(Mass value, Mass* scratch) {
  value = warp_largest(value);
  if (threadIdx.x % kWarp == 0) scratch[threadIdx.x / kWarp] = value;
  __syncthreads();
  value = warp_largest(scratch[threadIdx.x % kWarp]);
  __syncthreads();
  return value;
}
/// Exclusive prefix sum: the sum over all threads before this one.
__device__ inline Mass total_before(Mass value, Mass* scratch) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  Mass running = value;
  for (int step = 1; step < kWarp; step *= 2) {
    const Mass other = __shfl_up_sync(kAllLanes, running, step);
    if (lane >= step) running += other;
  }
  if (lane == kWarp - 1) scratch[threadIdx.x / kWarp] = running;
  __syncthreads();
  Mass before = running - value;
  for (int warp = 0; warp < static_cast<int>(threadIdx.x) / kWarp; ++warp) before += scratch[warp];
  __syncthreads();
  return before;
}

/// The largest key k such that the items with keys ≥ k have a total worth of at least `enough`; 0 if the total of all
/// items is less. A radix search, two bits per pass. `visit(fn)` calls fn(key, worth) for every item of this thread.
template <class Visit>
__device__ inline uint32_t radix_threshold(Mass enough, Mass* scratch, const Visit& visit) {
  uint32_t bound = 0;
  for (int shift = 30; shift >= 0; shift -= 2) {
    Mass sums[3] = {};
    visit([&](uint32_t key, auto&& worth) {
      if (key < bound + (1U << shift)) return;
      const Mass value = worth();
#pragma unroll
      for (uint32_t part = 1; part <= 3; ++part) {
        if (key >= bound + (part << shift)) sums[part - 1] += value;
      }
    });
    block_totals(sums, scratch);
    uint32_t parts = 0;
#pragma unroll
    for (int part = 0; part < 3; ++part) parts += sums[part] >= enough ? 1 : 0;
    bound += parts << shift;
  }
  return bound;
}

}  // namespace lamina::ops::cuda::sampling
