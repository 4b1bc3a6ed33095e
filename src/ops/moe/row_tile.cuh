#pragma once

// Finds on the device which rows of which expert a block processes, so that the host need not read the offsets.

#include <cstdint>

#include "lamina/tensor/cuda/kernel.cuh"

namespace lamina::ops::cuda {

/// Rows [begin, end) of an expert; expert −1: none.
struct RowTile {
  int64_t expert = -1, begin = 0, end = 0;
};

/// The rows of an expert, clamped to [0, slots) even if the offsets are invalid.
__device__ inline RowTile expert_rows(const int64_t* offsets, int64_t experts, int64_t slots, int64_t expert) {
  if (expert >= experts) return {};
  const int64_t begin = min(max(offsets[expert], int64_t{0}), slots);
  return {expert, begin, min(max(offsets[expert + 1], begin), slots)};
}

/// If the rows of each expert are split into tiles of `height` rows: tile number `tile`. Every warp computes it for
/// itself.
__device__ inline RowTile find_row_tile(const int64_t* offsets, int64_t experts, int64_t slots, int64_t tile,
                                        int height) {
  using lamina::cuda::kAllLanes;
  using lamina::cuda::kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  int64_t passed = 0;
  for (int64_t first = 0; first < experts; first += kWarp) {
    const RowTile rows = expert_rows(offsets, experts, slots, first + lane);
    const int64_t tiles = (rows.end - rows.begin + height - 1) / height;
    int64_t sum = tiles;
    for (int step = 1; step < kWarp; step *= 2) {
      const int64_t other = __shfl_up_sync(kAllLanes, sum, step);
      if (lane >= step) sum += other;
    }
    const unsigned reached = __ballot_sync(kAllLanes, passed + sum > tile);
    if (reached != 0) {
      const int owner = __ffs(static_cast<int>(reached)) - 1;
      const int64_t within = tile - passed - __shfl_sync(kAllLanes, sum - tiles, owner);
      const int64_t begin = __shfl_sync(kAllLanes, rows.begin, owner) + within * height;
      const int64_t end = __shfl_sync(kAllLanes, rows.end, owner);
      return {first + owner, begin, min(begin + height, end)};
    }
    passed += __shfl_sync(kAllLanes, sum, kWarp - 1);
  }
  return {};
}

/// Upper bound of the number of tiles, whatever the routing.
inline int64_t row_tiles(int64_t slots, int64_t experts, int64_t height) {
  return (slots + height - 1) / height + experts;
}

}  // namespace lamina::ops::cuda
