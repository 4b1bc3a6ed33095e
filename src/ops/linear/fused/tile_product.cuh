#pragma once

// A matrix product within one block of 256 threads, for operators whose operands are computed on the fly or whose sizes
// are known only on the device. It computes 64 × 64 results, 4 × 4 per thread, with f32 FMAs. 16 columns of the left
// operand and 16 rows of the right operand are in shared memory while the next ones are loaded to registers.

#include <cstdint>

namespace lamina::ops::cuda {

constexpr int kTile = 64;
constexpr int kTileThreads = 256;
constexpr int kTileDepth = 16;

struct TileMemory {
  float a[kTileDepth][kTile + 4];
  float b[kTileDepth][kTile + 4];
};

/// First row and column of a thread's results.
__device__ inline int tile_row() { return static_cast<int>(threadIdx.x) / 16 * 4; }
__device__ inline int tile_column() { return static_cast<int>(threadIdx.x) % 16 * 4; }

/// acc[r][c] += Σ_{k < extent} a(tile_row() + r, k) · b(k, tile_column() + c). a and b are called once for every row or
/// column from 0 to 63 and every k < extent; they must return zero outside the matrix. If kAlongK is set, adjacent
/// threads request adjacent k, else adjacent rows or columns. All threads of the block must call it; `memory` may be
/// reused on return.
template <bool kAlongKOfA, bool kAlongKOfB, class A, class B>
__device__ void tile_product(int64_t extent, const A& a, const B& b, TileMemory& memory, float (&acc)[4][4]) {
  constexpr int kLoads = kTile * kTileDepth / kTileThreads;
  const int tid = static_cast<int>(threadIdx.x);
  const auto place = [&](bool along_k, int load, int& row, int& k) {
    const int i = tid + load * kTileThreads;
    row = along_k ? i / kTileDepth : i % kTile;
    k = along_k ? i % kTileDepth : i / kTile;
  };
  float from_a[kLoads];
  float from_b[kLoads];
  const auto fetch = [&](int64_t first) {
#pragma unroll
    for (int load = 0; load < kLoads; ++load) {
      int row = 0;
      int k = 0;
      place(kAlongKOfA, load, row, k);
      from_a[load] = first + k < extent ? a(row, first + k) : 0.0F;
      place(kAlongKOfB, load, row, k);
      from_b[load] = first + k < extent ? b(first + k, row) : 0.0F;
    }
  };
  if (extent <= 0) return;
  fetch(0);
  for (int64_t first = 0; first < extent; first += kTileDepth) {
#pragma unroll
    for (int load = 0; load < kLoads; ++load) {
      int row = 0;
      int k = 0;
      place(kAlongKOfA, load, row, k);
      memory.a[k][row] = from_a[load];
      place(kAlongKOfB, load, row, k);
      memory.b[k][row] = from_b[load];
    }
    __syncthreads();
    if (first + kTileDepth < extent) fetch(first + kTileDepth);
#pragma unroll
    for (int k = 0; k < kTileDepth; ++k) {
      const float4 left = *reinterpret_cast<const float4*>(&memory.a[k][tile_row()]);
      const float4 right = *reinterpret_cast<const float4*>(&memory.b[k][tile_column()]);
      const float x[4] = {left.x, left.y, left.z, left.w};
      const float y[4] = {right.x, right.y, right.z, right.w};
#pragma unroll
      for (int r = 0; r < 4; ++r) {
#pragma unroll
        for (int c = 0; c < 4; ++c) acc[r][c] = fmaf(x[r], y[c], acc[r][c]);
      }
    }
    __syncthreads();
  }
}

/// Sum over the 16 threads that hold the results of one row, returned in all of them.
template <class Number>
__device__ Number tile_row_sum(Number value) {
#pragma unroll
  for (int step = 8; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffU, value, step);
  return value;
}

}  // namespace lamina::ops::cuda
