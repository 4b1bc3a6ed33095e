#pragma once

// Shared by the two kernels of the two-pass backward with mma.sync: one computes dk and dv, the other dq. Both
// recompute the weights from the saved statistics. That costs two more products per tile than a one-pass backward, but
// every sum is accumulated by one warp in a fixed order, so the result is deterministic and needs no second buffer. A
// warp owns 32 rows of heads up to 64 wide, so each fragment read from shared memory feeds two row tiles; of wider
// heads it owns 16 rows, because their accumulators fill the registers. The other operand is streamed in tiles of 64
// rows, double-buffered in shared memory.

#include "lamina/ops/attention/cuda/score_gradients.cuh"

namespace lamina::ops::cuda {

constexpr int kGradientThreads = 128;
constexpr int kGradientWarps = kGradientThreads / 32;
constexpr int kStreamedRows = 64;  // queries (or keys) per step

template <int kD>
constexpr int kRowTilesOf = kD == 64 ? 2 : 1;
template <int kD>
constexpr int kRowsOf = kGradientWarps * 16 * kRowTilesOf<kD>;
/// Bytes of shared memory of both kernels: two resident tiles and two stages of two streamed tiles.
template <int kD>
constexpr int kGradientBytes = (2 * kRowsOf<kD> + 4 * kStreamedRows) * kD * 2;

}  // namespace lamina::ops::cuda
