#pragma once

// Shared by the two backward kernels on tensor cores (mma.sync). Both recompute the weights from the saved statistics.
// That costs two more products per tile than a one-pass backward, but every sum is accumulated by one warp in a fixed
// order: deterministic, and without a second buffer. A warp owns 32 rows of heads up to 64 wide (16 rows of wider
// heads, whose accumulators fill the registers), so each fragment read from shared memory feeds two tiles. The other
// operand is streamed in tiles of 64, double-buffered in shared memory.

#include "lamina/ops/attention/cuda/score_gradients.cuh"

namespace lamina::ops::cuda {

constexpr int kGradientThreads = 128;
constexpr int kGradientWarps = kGradientThreads / 32;
constexpr int kStreamedRows = 64;  // queries (or keys) per step

template <int kD>
constexpr int kRowTilesOf = kD == 64 ? 2 : 1;
template <int kD>
constexpr int kRowsOf = kGradientWarps * 16 * kRowTilesOf<kD>;
/// Shared memory of both kernels: two resident tiles and two stages of two streamed tiles.
template <int kD>
constexpr int kGradientBytes = (2 * kRowsOf<kD> + 4 * kStreamedRows) * kD * 2;

}  // namespace lamina::ops::cuda
