#pragma once

// Computes weights and score gradients from a tile of scores and of products dy·v, in registers. There are two
// versions: for kernels whose tile rows are keys, and for those whose tile rows are queries.

#include "lamina/ops/attention/cuda/scores.cuh"

namespace lamina::ops::cuda {

/// apply_soft_cap() for backward: also multiplies the gradients by the derivative of the soft cap.
template <bool kByKeys, int kRowTiles, int kBlocks>
__device__ inline float apply_soft_cap_backward(const AttentionParams& p, const HeadBias& bias, const ScoreIndex& place,
                                                AccumulatorTile<kRowTiles, kBlocks>& s,
                                                AccumulatorTile<kRowTiles, kBlocks>& ds) {
  return apply_soft_cap<kByKeys, kRowTiles, kBlocks>(
      p, bias, place.query, place.key, s, [&](int m, int n, int i, float t) { ds[m][n][i] *= 1.0F - t * t; });
}

template <int kRowTiles, int kBlocks>
__device__ inline void scale_sums(AccumulatorTile<kRowTiles, kBlocks>& sums, float factor) {
  for_places<kRowTiles, kBlocks>([&](int m, int n, int i) { sums[m][n][i] *= factor; });
}

/// Rows are keys: sets the weights of queries that do not see a key to zero.
template <int kRowTiles, int kBlocks>
__device__ inline void hide_by_keys(const AttentionParams& p, const ScoreIndex& place,
                                    AccumulatorTile<kRowTiles, kBlocks>& s) {
  DeviceMask::Range seen[2 * kRowTiles];
#pragma unroll
  for (int n = 0; n < 2 * kRowTiles; ++n) {
    seen[n] = p.mask.queries(min(place.key + n / 2 * 16 + n % 2 * 8, p.seq_k - 1));
  }
  for_sums<kRowTiles, kBlocks>(s, [&](float& x, int row, int column) {
    const DeviceMask::Range& own = seen[half_of(row)];
    x = place.query + column >= own.begin && place.query + column < own.end ? x : 0.0F;
  });
}

/// Rows are queries: sets the weights of keys that a query does not see to zero.
template <int kRowTiles, int kBlocks>
__device__ inline void hide_by_queries(const AttentionParams& p, const ScoreIndex& place,
                                       AccumulatorTile<kRowTiles, kBlocks>& s) {
  DeviceMask::Range seen[2 * kRowTiles];
#pragma unroll
  for (int n = 0; n < 2 * kRowTiles; ++n) {
    const int row = place.query + n / 2 * 16 + n % 2 * 8;
    seen[n] = row < p.seq_q ? p.mask.keys(row) : DeviceMask::Range{0, 0};
  }
  for_sums<kRowTiles, kBlocks>(s, [&](float& x, int row, int column) {
    const DeviceMask::Range& own = seen[half_of(row)];
    x = place.key + column >= own.begin && place.key + column < own.end ? x : 0.0F;
  });
}

/// Rows are keys. Input: s = k·q, to which `shift` must be added, and ds = v·dy. Output: s holds the weights after
/// dropout, without its scale factor, and ds the score gradients. `base` and `delta` point to the values of the lane's
/// first query. hide(s) sets masked weights to zero.
template <ScoreFeatures kWork, int kRowTiles, int kBlocks, class Hide>
__device__ inline void find_gradients_by_keys(const AttentionParams& p, const HeadBias& bias, const ScoreIndex& place,
                                              const DropoutMaskOf<kWork, true, kRowTiles, kBlocks>& kept, float shift,
                                              const float* base, const float* delta,
                                              AccumulatorTile<kRowTiles, kBlocks>& s,
                                              AccumulatorTile<kRowTiles, kBlocks>& ds, const Hide& hide) {
  constexpr bool kDropped = has_dropout(kWork);
#pragma unroll
  for (int n = 0; n < kBlocks; ++n) {
    const float2 mean = *reinterpret_cast<const float2*>(delta + n * 8);
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float factor = !kDropped ? 1.0F : kept.at(m, n, i) ? p.dropout.factor : 0.0F;
        ds[m][n][i] = fmaf(ds[m][n][i], factor, i % 2 == 0 ? -mean.x : -mean.y);
      }
    }
  }
  if constexpr (has_general_scores(kWork)) {
    shift += apply_soft_cap_backward<true, kRowTiles, kBlocks>(p, bias, place, s, ds);
  }
#pragma unroll
  for (int n = 0; n < kBlocks; ++n) {
    const float2 low = *reinterpret_cast<const float2*>(base + n * 8);
    float start[2] = {-low.x, -low.y};
    if constexpr (has_general_scores(kWork)) {
      start[0] = fmaf(shift, p.unit, -low.x);
      start[1] = fmaf(shift, p.unit, -low.y);
    }
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) s[m][n][i] = fast_exp2(fmaf(s[m][n][i], p.unit, start[i % 2]));
    }
  }
  hide(s);
  for_places<kRowTiles, kBlocks>([&](int m, int n, int i) {
    ds[m][n][i] *= s[m][n][i];
    if (kDropped) s[m][n][i] = kept.at(m, n, i) ? s[m][n][i] : 0.0F;
  });
}

/// base and delta of a lane's rows, if rows are queries: two rows per 16.
template <int kRowTiles>
struct QueryRows {
  float base[2 * kRowTiles];
  float delta[2 * kRowTiles];

  /// `query` is the lane's first query. Rows from `end` on get weights of 0.
  __device__ QueryRows(const AttentionParams& p, int b, int head, int query, int end) {
#pragma unroll
    for (int n = 0; n < 2 * kRowTiles; ++n) {
      const int row = query + n / 2 * 16 + n % 2 * 8;
      const bool inside = row < end;
      const int64_t at = p.statistics_row(b, head) + row;
      base[n] = inside ? p.base[at] : INFINITY;
      delta[n] = inside ? p.delta[at] : 0.0F;
    }
  }
};

/// Rows are queries. Input: s = q·k, to which `shift` must be added, and ds = dy·v. Output: ds holds the score
/// gradients. hide(s) sets masked weights to zero.
template <ScoreFeatures kWork, int kRowTiles, int kBlocks, class Hide>
__device__ inline void find_gradients_by_queries(const AttentionParams& p, const HeadBias& bias,
                                                 const ScoreIndex& place,
                                                 const DropoutMaskOf<kWork, false, kRowTiles, kBlocks>& kept,
                                                 float shift, const QueryRows<kRowTiles>& rows,
                                                 AccumulatorTile<kRowTiles, kBlocks>& s,
                                                 AccumulatorTile<kRowTiles, kBlocks>& ds, const Hide& hide) {
  constexpr bool kDropped = has_dropout(kWork);
  for_places<kRowTiles, kBlocks>([&](int m, int n, int i) {
    const float factor = !kDropped ? 1.0F : kept.at(m, n, i) ? p.dropout.factor : 0.0F;
    ds[m][n][i] = fmaf(ds[m][n][i], factor, -rows.delta[2 * m + i / 2]);
  });
  if constexpr (has_general_scores(kWork)) {
    shift += apply_soft_cap_backward<false, kRowTiles, kBlocks>(p, bias, place, s, ds);
  }
  float start[2 * kRowTiles];
#pragma unroll
  for (int n = 0; n < 2 * kRowTiles; ++n) {
    start[n] = !has_general_scores(kWork) ? -rows.base[n] : fmaf(shift, p.unit, -rows.base[n]);
  }
  for_sums<kRowTiles, kBlocks>(s, [&](float& x, int row, int) { x = fast_exp2(fmaf(x, p.unit, start[half_of(row)])); });
  hide(s);
  for_places<kRowTiles, kBlocks>([&](int m, int n, int i) { ds[m][n][i] *= s[m][n][i]; });
}

}  // namespace lamina::ops::cuda
