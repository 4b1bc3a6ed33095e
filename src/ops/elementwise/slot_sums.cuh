#pragma once

// Sums the partial results of a kernel's blocks, [slots, width] f32, in an order that depends only on the counts. A
// block takes 32 columns and splits the slots among 32 teams of threads. Each thread has up to eight loads in flight,
// so that all partial results are loaded at once.
//
// The kernel starts while its predecessor still runs (programmatic dependent launch), so a profile shows mostly waiting
// time for it.

#include "lamina/tensor/cuda/kernel.cuh"

namespace lamina::ops::cuda {

/// total = factor · Σ over the slots.
struct SlotSums {
  const float* slots = nullptr;  ///< [count, width]
  float* total = nullptr;        ///< [width]
};

constexpr int kSlotThreads = 256;
constexpr int kSlotColumns = 32;                               // columns per block, four per thread
constexpr int kSlotTeams = kSlotThreads / (kSlotColumns / 4);  // teams that share the slots

/// Sums `first`; blocks with blockIdx.y = 1 sum `second`.
static __global__ void __launch_bounds__(kSlotThreads)
    add_slots_kernel(SlotSums first, SlotSums second, int64_t count, int64_t width, float factor) {
  __shared__ float4 sums[kSlotTeams][kSlotColumns / 4];
  lamina::cuda::grid_dependency_wait();
  const SlotSums& of = blockIdx.y == 0 ? first : second;
  const int lane = threadIdx.x % (kSlotColumns / 4);
  const int team = threadIdx.x / (kSlotColumns / 4);
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kSlotColumns + lane * 4;
  const auto add = [](float4& sum, const float4& more) {
    sum.x += more.x, sum.y += more.y, sum.z += more.z, sum.w += more.w;
  };
  float4 sum = {0.0F, 0.0F, 0.0F, 0.0F};
  if (column < width) {
#pragma unroll 8
    for (int64_t n = team; n < count; n += kSlotTeams) {
      add(sum, *reinterpret_cast<const float4*>(of.slots + n * width + column));
    }
  }
  sums[team][lane] = sum;
  __syncthreads();
  if (team != 0 || column >= width) return;
#pragma unroll
  for (int n = 1; n < kSlotTeams; ++n) add(sum, sums[n][lane]);
  *reinterpret_cast<float4*>(of.total + column) =
      make_float4(factor * sum.x, factor * sum.y, factor * sum.z, factor * sum.w);
}

/// Sums `first`, and `second` if its total is set. `width` must be a multiple of four.
inline void sum_partials(const Device& device, const SlotSums& first, const SlotSums& second, int64_t count,
                         int64_t width, float factor) {
  const dim3 blocks(static_cast<unsigned>((width + kSlotColumns - 1) / kSlotColumns), second.total != nullptr ? 2 : 1);
  lamina::cuda::launch_dependent(add_slots_kernel, blocks, dim3(kSlotThreads), 0, device, first, second, count, width,
                                 factor);
}

}  // namespace lamina::ops::cuda
