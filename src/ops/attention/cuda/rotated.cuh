#pragma once

// Backward kernels of plain attention for queries and keys that were rotated (RoPE). They hold whole heads when they
// write dq and dk, so they can apply the inverse rotation before. There are two: a single launch for short sequences,
// and the one-pass backward for long ones.

#include "lamina/ops/attention/cuda/mma/mma.cuh"
#include "lamina/ops/attention/cuda/scores.cuh"

namespace lamina::ops::cuda {

/// Tables for the rotation of queries and keys that are kWidth wide, with half-split pairing.
struct RotaryAngles {
  static constexpr int kWidth = 64;
  static constexpr int kPairs = kWidth / 2;
  const float* cos;  // [seq, kPairs]; null: no rotation
  const float* sin;

  /// Rotates accumulator element (n, i), with its partner in the other half, by the negative angle.
  __device__ static void rotate_pair_back(AccumulatorTile<1, kWidth / 8>& sums, int n, int i, float c, float s) {
    const float first = sums[0][n][i];
    const float second = sums[0][n + kPairs / 8][i];
    sums[0][n][i] = fmaf(first, c, second * s);
    sums[0][n + kPairs / 8][i] = fmaf(second, c, -first * s);
  }
  /// Applies the inverse rotation to a warp's rows, if there was a rotation. `row` is the lane's first position; the
  /// sequence has `seq` positions.
  __device__ void rotate_back(AccumulatorTile<1, kWidth / 8>& sums, int row, int seq) const {
    if (cos == nullptr) return;
    const int column = static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t at = static_cast<int64_t>(min(row + half * 8, seq - 1)) * kPairs + column;
#pragma unroll
      for (int n = 0; n < kPairs / 8; ++n) {
        const auto c = *reinterpret_cast<const float2*>(cos + at + n * 8);
        const auto s = *reinterpret_cast<const float2*>(sin + at + n * 8);
        rotate_pair_back(sums, n, 2 * half, c.x, s.x);
        rotate_pair_back(sums, n, 2 * half + 1, c.y, s.y);
      }
    }
  }
};

/// Computes all gradients in one launch. Does not read `delta` and `base`. If `row_inv_sum` is null, `row_max` holds
/// log Σ exp(score).
bool supports_short_backward(const AttentionParams& params, const Device& device);
template <class T>
void short_backward(const AttentionParams& params, const RotaryAngles& angles, const Device& device);

/// One-pass backward. dq accumulates with atomics, so it is not deterministic.
bool supports_one_pass_backward(const AttentionParams& params, const Device& device);
template <class T>
void one_pass_backward(const AttentionParams& params, const RotaryAngles& angles, const Device& device);

}  // namespace lamina::ops::cuda
