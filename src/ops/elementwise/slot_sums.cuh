#pragma once

// What the blocks of a kernel have each left of a sum, [slots, width] of f32, added up in an order that the counts
// alone decide. A block has 32 columns and shares the slots out to 32 teams of its threads, each with up to eight loads
// under way: what a wave of blocks has left is asked for at once. It takes its place while the kernel before it still
// runs, which is most of what a profile shows of it.

#include "lamina/tensor/cuda/kernel.cuh"

namespace lamina::ops::cuda {

/// total = factor · Σ over the slots.
struct SlotSums {
  const float* slots = nullptr;  ///< [count, width]
  float* total = nullptr;        ///< [width]
};

constexpr int kSlotThreads = 256;
constexpr int kSlotColumns = 32;                               // of a block, four a thread
constexpr int kSlotTeams = kSlotThreads / (kSlotColumns / 4);  // that share the slots

/// Blocks of y = 1 add up `second`.
static __global__ void __launch_bounds__(kSlotThreads)
    add_slots_kernel(SlotSums first, SlotSums second, int64_t count, int64_t width, float factor) {
  __shared__ float4 sums[kSlotTeams][kSlotColumns / 4];
  lamina::cuda::wait_for_previous();
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

/// Both, or the first where the second is none; width in whole fours.
inline void add_slots(const Device& device, const SlotSums& first, const SlotSums& second, int64_t count, int64_t width,
                      float factor) {
  const dim3 blocks(static_cast<unsigned>((width + kSlotColumns - 1) / kSlotColumns), second.total != nullptr ? 2 : 1);
  lamina::cuda::launch_dependent(add_slots_kernel, blocks, dim3(kSlotThreads), 0, device, first, second, count, width,
                                 factor);
}

}  // namespace lamina::ops::cuda
