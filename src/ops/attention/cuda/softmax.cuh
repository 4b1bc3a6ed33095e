#pragma once

// The online softmax of the tensor-core forward kernels, for one lane's part of its rows.

#include "lamina/ops/attention/cuda/scores.cuh"

namespace lamina::ops::cuda {

/// One number for each of a lane's rows: number n is for row 16·(n / 2) + 8·(n % 2) + lane / 4 of its warp.
template <int kRowTiles>
using RowValues = float[2 * kRowTiles];

/// Sets scores outside the rows' key ranges or outside `keys` to −inf. `query` and `key` belong to the lane's first
/// score.
template <int kRowTiles, int kBlocks>
__device__ inline void mask_scores(const AttentionParams& p, int query, int key, const DeviceMask::Range& keys,
                                   AccumulatorTile<kRowTiles, kBlocks>& s) {
  DeviceMask::Range seen[2 * kRowTiles];
#pragma unroll
  for (int n = 0; n < 2 * kRowTiles; ++n) {
    const int row = query + n / 2 * 16 + n % 2 * 8;
    seen[n] = row < p.seq_q ? p.mask.keys(row) : DeviceMask::Range{0, 0};
    seen[n] = {max(seen[n].begin, keys.begin) - key, min(seen[n].end, keys.end) - key};
  }
  for_sums<kRowTiles, kBlocks>(s, [&](float& x, int row, int column) {
    const DeviceMask::Range& own = seen[half_of(row)];
    x = column >= own.begin && column < own.end ? x : -INFINITY;
  });
}

/// Softmax state of a lane's rows. Scores have the scale of AttentionParams::unit. `shift` is a value per row that must
/// still be added to its scores.
template <int kRowTiles>
struct SoftmaxRows {
  using Values = RowValues<kRowTiles>;
  /// The running maximum is updated only if a new one exceeds it by this much (in log2). Until then weights may exceed
  /// 1, which is harmless, and the sums need no rescaling.
  static constexpr float kSlack = 8.0F;

  Values most;  // running maximum of each row
  Values sum;   // sum over this lane's columns only

  __device__ SoftmaxRows(const AttentionParams& p, int head) {
    const float sink = p.sinks == nullptr ? kMinusLarge : p.sinks[head];
    const bool counts = sink > kMinusLarge && threadIdx.x % 4 == 0;
#pragma unroll
    for (int n = 0; n < 2 * kRowTiles; ++n) {
      most[n] = fmaxf(sink * kLog2E / p.unit, kMinusLarge);
      sum[n] = counts ? 1.0F : 0.0F;
    }
  }

  template <int kBlocks>
  __device__ static void find_maxima(const Values& shift, const AccumulatorTile<kRowTiles, kBlocks>& s, Values& found) {
#pragma unroll
    for (int row = 0; row < 2 * kRowTiles; ++row) {
      const int m = row / 2;
      const int i = row % 2 * 2;
      found[row] = fmaxf(s[m][0][i], s[m][0][i + 1]);
#pragma unroll
      for (int n = 1; n < kBlocks; ++n) found[row] = fmaxf(found[row], fmaxf(s[m][n][i], s[m][n][i + 1]));
      found[row] += shift[row];
      found[row] = fmaxf(found[row], __shfl_xor_sync(lamina::cuda::kAllLanes, found[row], 1));
      found[row] = fmaxf(found[row], __shfl_xor_sync(lamina::cuda::kAllLanes, found[row], 2));
    }
  }
  /// Updates those maxima that have grown by more than kSlack, and rescales the sums and the output y.
  template <int kColumns>
  __device__ void raise(float unit, const Values& found, AccumulatorTile<kRowTiles, kColumns>& y) {
    bool grown = false;
#pragma unroll
    for (int row = 0; row < 2 * kRowTiles; ++row) grown |= (found[row] - most[row]) * unit > kSlack;
    if (!__any_sync(lamina::cuda::kAllLanes, grown)) return;
#pragma unroll
    for (int row = 0; row < 2 * kRowTiles; ++row) {
      const float greater = fmaxf(found[row], most[row]);
      const float shrink = fast_exp2((most[row] - greater) * unit);
      most[row] = greater;
      sum[row] *= shrink;
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
        y[row / 2][n][row % 2 * 2] *= shrink;
        y[row / 2][n][row % 2 * 2 + 1] *= shrink;
      }
    }
  }
  /// Replaces the scores by weights and adds these to the sums.
  template <int kBlocks>
  __device__ void weigh(float unit, const Values& shift, AccumulatorTile<kRowTiles, kBlocks>& s) {
    Values base;
#pragma unroll
    for (int row = 0; row < 2 * kRowTiles; ++row) base[row] = (shift[row] - most[row]) * unit;
    for_sums<kRowTiles, kBlocks>(s, [&](float& x, int row, int) {
      x = fast_exp2(fmaf(x, unit, base[half_of(row)]));
      sum[half_of(row)] += x;
    });
  }

  /// Called after the last tile. Divides y by the sums, multiplies it by `factor`, and writes the softmax statistics of
  /// rows below `end`. `query` is the lane's first row.
  template <int kColumns>
  __device__ void finish(const AttentionParams& p, int64_t statistics, int query, int end, float factor,
                         AccumulatorTile<kRowTiles, kColumns>& y) const {
#pragma unroll
    for (int n = 0; n < 2 * kRowTiles; ++n) {
      float all = sum[n];
      all += __shfl_xor_sync(lamina::cuda::kAllLanes, all, 1);
      all += __shfl_xor_sync(lamina::cuda::kAllLanes, all, 2);
      const float row_inv_sum = all != 0 ? 1.0F / all : 0.0F;
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        y[n / 2][c][n % 2 * 2] *= row_inv_sum * factor;
        y[n / 2][c][n % 2 * 2 + 1] *= row_inv_sum * factor;
      }
      const int row = query + n / 2 * 16 + n % 2 * 8;
      if (threadIdx.x % 4 == 0 && row < end) {
        p.row_max[statistics + row] = most[n] * p.unit * kLn2;
        p.row_inv_sum[statistics + row] = row_inv_sum;
      }
    }
  }
};

}  // namespace lamina::ops::cuda
