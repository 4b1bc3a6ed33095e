#pragma once

// Shared by forward and backward of the bf16 scans on tensor cores: pieces of 64 positions, their decays, and pairs of
// bf16.

#include "lamina/ops/ssm/ssd_scan.cuh"
#include "lamina/tensor/cuda/matrix_loads.cuh"
#include "lamina/tensor/cuda/mma.cuh"

namespace lamina::ops::cuda::ssd {

using namespace lamina::cuda;  // NOLINT: kernel helpers
using Half = __nv_bfloat16;

constexpr int kPiece = 64;             // positions per iteration: a piece
constexpr int kFeatures = 64;          // features of a head per block
constexpr int kBackwardThreads = 256;  // a warp has 16 positions × half the columns, and 16 features × half of n

/// Per-position quantities of a piece, in shared memory. They depend only on dt and a.
struct ChunkDecays {
  static constexpr int kBytes = (3 * kPiece + 4) * 4;
  float* step;    ///< Δ
  float* sum;     ///< log2 of the decay from the start of the piece
  float* to_end;  ///< decay to the end of the piece
  float* whole;   ///< decay over the whole piece

  __device__ explicit ChunkDecays(unsigned char* memory)
      : step(reinterpret_cast<float*>(memory)), sum(step + kPiece), to_end(sum + kPiece), whole(to_end + kPiece) {}
};

__device__ inline float inclusive_sum(float value, int lane, bool backwards) {
#pragma unroll
  for (int step = 1; step < kWarp; step *= 2) {
    const float other = backwards ? __shfl_down_sync(kAllLanes, value, step) : __shfl_up_sync(kAllLanes, value, step);
    if (backwards ? lane + step < kWarp : lane >= step) value += other;
  }
  return value;
}

/// Fills ChunkDecays. Called by one warp, with the steps Δ of positions `lane` and `lane` + 32 (zero past the end).
__device__ inline void compute_decays(const ChunkDecays& to, float first, float second, float rate, int lane) {
  const float here = first * rate;
  const float there = second * rate;
  const float sum = inclusive_sum(here, lane, false);
  const float sum_there = inclusive_sum(there, lane, false) + __shfl_sync(kAllLanes, sum, kWarp - 1);
  const float rest_there = inclusive_sum(there, lane, true);
  const float rest = inclusive_sum(here, lane, true) + __shfl_sync(kAllLanes, rest_there, 0);
  to.step[lane] = first;
  to.step[lane + kWarp] = second;
  to.sum[lane] = sum * kLog2E;
  to.sum[lane + kWarp] = sum_there * kLog2E;
  to.to_end[lane] = expf(rest - here);
  to.to_end[lane + kWarp] = expf(rest_there - there);
  if (lane == 0) *to.whole = expf(rest);
}

__device__ inline uint32_t rounded_pair(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  uint32_t bits;
  __builtin_memcpy(&bits, &pair, 4);
  return bits;
}
__device__ inline float low_of(uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ inline float high_of(uint32_t pair) { return __uint_as_float(pair & 0xffff0000U); }

}  // namespace lamina::ops::cuda::ssd
