#pragma once

// The gradient of the T5 bias: sums the score gradients first by distance, then by bucket.

#include "lamina/ops/attention/cuda/scores.cuh"

namespace lamina::ops::cuda {

/// Per-warp sums of score gradients by distance (key − query), in shared memory. Most tiles lie entirely beyond the
/// distance of the last bucket; for these each lane adds to a register. For the other tiles, each lane first adds its
/// 8×8 blocks along block diagonals; then one lane sums each single diagonal and adds it to its distance. Distances are
/// mapped to buckets only at the end.
template <int kBlocks>
struct DistanceSums {
  static constexpr int kRows = 16;
  static constexpr int kColumns = 8 * kBlocks;
  static constexpr int kMargin = kRows + kColumns;  // distances stored beyond flat_from
  static constexpr int kDiagonals = kBlocks + 1;    // diagonals of 8×8 blocks
  // Floats per diagonal, padded so that four diagonals use different banks.
  static constexpr int kDiagonalFloats = 72;
  static constexpr int kPasses = (8 * (kDiagonals + 1) + 31) / 32;
  /// First a zero diagonal, then the block diagonals, another zero one, and padding that the last pass reads.
  static constexpr int kScratch = (4 * kPasses + 1) * kDiagonalFloats;

  /// Distances range from −half() to half() − 1.
  __host__ __device__ static constexpr int half(int flat_from) { return flat_from + kMargin; }
  /// Floats of shared memory that a warp needs.
  __host__ __device__ static constexpr int floats(int flat_from) { return 2 * half(flat_from) + kScratch; }

  float* sums;
  float* scratch;
  int flat_from;
  float before = 0;  // this lane's sum for keys that are at least flat_from before their query
  float after = 0;

  /// `memory` holds floats() floats.
  __device__ DistanceSums(float* memory, int flat)
      : sums(memory + half(flat)), scratch(sums + half(flat)), flat_from(flat) {}
  __device__ void begin() {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    for (int n = lane - half(flat_from); n < half(flat_from); n += 32) sums[n] = 0;
    for (int n = lane; n < kDiagonalFloats; n += 32) {
      scratch[n] = 0;
      scratch[(kDiagonals + 1) * kDiagonalFloats + n] = 0;
    }
    __syncwarp();
  }
  /// Adds a tile of score gradients; `distance` is key − query of its first row and column.
  __device__ void add(const AccumulatorTile<1, kBlocks>& grads, int distance) {
    const bool keys_come_after = distance - (kRows - 1) >= flat_from;
    if (!keys_come_after && distance + kColumns - 1 > -flat_from) return add_diagonals(grads, distance);
    float four[4] = {};
    for_places<1, kBlocks>([&](int m, int n, int i) { four[i] += grads[m][n][i]; });
    (keys_come_after ? after : before) += four[0] + four[1] + (four[2] + four[3]);
  }
  /// Adds the sums kept in registers to the distances −flat_from and flat_from.
  __device__ void finish() {
    const float two[2] = {lamina::cuda::warp_sum(before), lamina::cuda::warp_sum(after)};
    __syncwarp();
    if (threadIdx.x % 32 != 0) return;
    sums[-flat_from] += two[0];
    sums[flat_from] += two[1];
  }

 private:
  __device__ void add_diagonals(const AccumulatorTile<1, kBlocks>& grads, int distance) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    float2 along[kDiagonals] = {};
#pragma unroll
    for (int n = 0; n < kBlocks; ++n) {
#pragma unroll
      for (int lower = 0; lower < 2; ++lower) {
        float2& to = along[lower - n + kBlocks - 1];
        to.x += grads[0][n][2 * lower];
        to.y += grads[0][n][2 * lower + 1];
      }
    }
    __syncwarp();  // all lanes have read the previous tile's values
#pragma unroll
    for (int n = 0; n < kDiagonals; ++n) {
      *reinterpret_cast<float2*>(scratch + (n + 1) * kDiagonalFloats + 2 * lane) = along[n];
    }
    __syncwarp();
    // Row r and column c of block diagonal n lie 8·(n − kBlocks + 1) + r − c rows below the tile's main diagonal.
    const int below = lane % 8;
    const float* from = scratch + lane / 8 * kDiagonalFloats;
    float total[kPasses] = {};
#pragma unroll
    for (int r = 0; r < 8; ++r) {
      const float* its = from + (r >= below ? 0 : kDiagonalFloats) + r * 8 + ((r - below) & 7);
#pragma unroll
      for (int pass = 0; pass < kPasses; ++pass) total[pass] += its[pass * 4 * kDiagonalFloats];
    }
    float* to = sums + distance - 8 * (lane / 8 - kBlocks) - below;
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      if (pass * 4 + lane / 8 <= kDiagonals) to[-32 * pass] += total[pass];
    }
  }
};

/// Adds the sums of all warps of a block and writes them by bucket. Each warp first adds up runs of equal buckets
/// within 32 distances; then the block adds these. `memory` starts at the memory of warp 0; all warps must have called
/// finish() and a barrier. `room` has one float per bucket and group of 32 distances.
template <int kBlocks, int kThreads>
__device__ inline void store_buckets(const AttentionParams& p, const float* memory, float* room, float* out) {
  using Distances = DistanceSums<kBlocks>;
  constexpr int kWarps = kThreads / 32;
  const int half = Distances::half(p.t5_flat_from);
  const int warp_floats = Distances::floats(p.t5_flat_from);
  const int count = p.mask.causal ? half + 1 : 2 * half;  // causal: no key is after its query
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  for (int n = thread; n < (count + 31) / 32 * p.t5_buckets; n += kThreads) room[n] = 0;
  __syncthreads();
  for (int n = thread; n - lane < count; n += kThreads) {
    const int at = min(n, count - 1);
    const int bucket = p.bucket_of(at - half);
    float sum = 0;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) sum += memory[warp * warp_floats + at];
    if (n >= count) sum = 0;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const float before = __shfl_up_sync(lamina::cuda::kAllLanes, sum, step);
      const int its = __shfl_up_sync(lamina::cuda::kAllLanes, bucket, step);
      if (lane >= step && its == bucket) sum += before;
    }
    const int next_bucket = __shfl_down_sync(lamina::cuda::kAllLanes, bucket, 1);
    if (lane == 31 || next_bucket != bucket) room[n / 32 * p.t5_buckets + bucket] = sum;
  }
  __syncthreads();
  for (int bucket = thread; bucket < p.t5_buckets; bucket += kThreads) {
    float sum = 0;
    for (int n = bucket; n < (count + 31) / 32 * p.t5_buckets; n += p.t5_buckets) sum += room[n];
    out[bucket] = sum;
  }
}

}  // namespace lamina::ops::cuda
