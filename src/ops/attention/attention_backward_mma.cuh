#pragma once

// What the two gradient kernels on tensor cores share. Both compute the weights again from the saved statistics: two
// more products per tile than one kernel would need, but every sum is made by one warp in one order, without a second
// buffer, and the bits never change. A warp has 32 rows of heads up to 64 wide (16 of wider ones, whose sums take the
// registers), so that a matrix read from shared memory meets two tiles. What is walked over comes in tiles of 64, two
// in shared memory, one on its way.

#include "lamina/ops/attention/attention_score_gradients.cuh"

namespace lamina::ops::cuda {

constexpr int kGradientThreads = 128;
constexpr int kGradientWarps = kGradientThreads / 32;
constexpr int kWalk = 64;  // queries, or keys, of a step

template <int kD>
constexpr int kRowTilesOf = kD == 64 ? 2 : 1;
template <int kD>
constexpr int kRowsOf = kGradientWarps * 16 * kRowTilesOf<kD>;
/// The tiles of both kernels: two that stay, two stages of two.
template <int kD>
constexpr int kGradientBytes = (2 * kRowsOf<kD> + 4 * kWalk) * kD * 2;

}  // namespace lamina::ops::cuda
