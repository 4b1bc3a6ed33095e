// Forward on tensor cores, bf16 and f16, heads up to 128 wide (padded to 64 or 128). A block of four warps has 128
// queries of one head, 32 per warp, so that every matrix of keys or values read from shared memory meets two rows of
// tiles; it walks over tiles of 64 keys, two of them in shared memory: while one is used the next is on its way.
// Scores, weights, the running maximum and sum and the weighted sum of values all stay in registers. Weights are powers
// of two of scaled scores. Tiles that no query sees are never loaded; of those some see, warps skip what lies outside
// their own rows' reach, and only warps at an edge look at single scores. Blocks of one head follow each other, so that
// its keys come from the second-level cache; the longest go first. Two kernels each: one for scores that are only
// scaled and seen in ranges, one with soft cap, bias, dropout and patterns with holes, whose calls and registers the
// other is spared.
#include "lamina/ops/attention/attention_mma.cuh"

namespace lamina::ops::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kRowTiles = 2;               // of 16 queries, per warp
constexpr int kWarpRows = kRowTiles * 16;  // 32
constexpr int kQueries = kThreads / 32 * kWarpRows;
constexpr int kKeys = 64;
constexpr int kBlocks = kKeys / 8;

using Coverage = DeviceMask::Coverage;
using Range = DeviceMask::Range;

constexpr int kHalves = 2 * kRowTiles;  // rows of a lane: 16·(n / 2) + 8·(n % 2) + lane / 4

/// What a lane knows of its rows.
struct RowState {
  float most[kHalves];  // greatest score so far, in units of `unit` (see forward_mma_kernel)
  float sum[kHalves];   // of this lane's columns only
  Range seen[kHalves];
};

/// Soft cap and bias; scores become logarithms to base two.
__device__ void adjust(const AttentionParams& p, const HeadBias& bias, int query, int key,
                       Sums<kRowTiles, kBlocks>& s) {
  if (p.soft_cap > 0) {
    const float inner = p.scale / p.soft_cap;
    const float outer = p.soft_cap * kLog2E;
    for_sums<kRowTiles, kBlocks>(s, [&](float& x, int, int) { x = outer * quick_tanh(x * inner); });
  } else {
    const float factor = p.scale * kLog2E;
    for_sums<kRowTiles, kBlocks>(s, [&](float& x, int, int) { x *= factor; });
  }
  if (bias.table != nullptr) {
    for_sums<kRowTiles, kBlocks>(s, [&](float& x, int row, int column) {
      x = fmaf(bias.table[min(query + row, p.seq_q - 1) - min(key + column, p.seq_k - 1)], kLog2E, x);
    });
  } else if (bias.slope != 0) {
    const float slope = -bias.slope * kLog2E;
    const int distance = query + bias.offset - key;
    for_sums<kRowTiles, kBlocks>(s, [&](float& x, int row, int column) {
      x = fmaf(slope, fabsf(static_cast<float>(distance + row - column)), x);
    });
  }
}

/// −inf for what lies outside the rows' ranges.
__device__ void hide(const RowState& rows, int key, Sums<kRowTiles, kBlocks>& s) {
  for_sums<kRowTiles, kBlocks>(s, [&](float& x, int row, int column) {
    const Range& seen = rows.seen[half_of(row)];
    x = key + column >= seen.begin && key + column < seen.end ? x : -INFINITY;
  });
}

/// −inf for what falls into a pattern's holes.
__device__ void hide_holes(const DeviceMask& mask, int query, int key, Sums<kRowTiles, kBlocks>& s) {
  for_sums<kRowTiles, kBlocks>(s, [&](float& x, int row, int column) {
    if (x != -INFINITY && !mask.pattern_allows(query + row, key + column)) x = -INFINITY;
  });
}

/// Scores become weights; sums of earlier tiles shrink to the new maximum.
template <int kD>
__device__ void softmax(float unit, RowState& rows, Sums<kRowTiles, kBlocks>& s, Sums<kRowTiles, kD / 8>& y) {
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = 2 * m + half;
      float most = rows.most[row];
#pragma unroll
      for (int n = 0; n < kBlocks; ++n) most = fmaxf(most, fmaxf(s[m][n][2 * half], s[m][n][2 * half + 1]));
      most = fmaxf(most, __shfl_xor_sync(lamina::cuda::kAllLanes, most, 1));
      most = fmaxf(most, __shfl_xor_sync(lamina::cuda::kAllLanes, most, 2));
      const float shrink = power_of_two((rows.most[row] - most) * unit);
      const float base = most * unit;
      float sum = rows.sum[row] * shrink;
#pragma unroll
      for (int n = 0; n < kBlocks; ++n) {
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          s[m][n][i] = power_of_two(fmaf(s[m][n][i], unit, -base));
          sum += s[m][n][i];
        }
      }
#pragma unroll
      for (int n = 0; n < kD / 8; ++n) {
        y[m][n][2 * half] *= shrink;
        y[m][n][2 * half + 1] *= shrink;
      }
      rows.sum[row] = sum;
      rows.most[row] = most;
    }
  }
}

__device__ void drop(const AttentionParams& p, int b, int head, int query, int key, Sums<kRowTiles, kBlocks>& s) {
  const uint64_t stream = p.dropout.key.stream + *p.dropout.stream_offset;
  const int lane_column = static_cast<int>(threadIdx.x) % 4 * 2;
  const auto seq_k = static_cast<uint64_t>(p.seq_k);
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
    const uint64_t row = p.dropout_row(b, head, query + m * 16);
#pragma unroll
    for (int n = 0; n < kBlocks; ++n) {
      const auto column = static_cast<uint64_t>(key + n * 8);
      float factors[4];
      if (p.seq_k % 4 == 0) {
        const uint64_t element = row + column - lane_column;
        dropout_factors(p.dropout, stream, element, element + 8 * seq_k, factors);
      } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) factors[i] = p.dropout.of(row + i / 2 * 8 * seq_k + column + i % 2);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) s[m][n][i] *= factors[i];
    }
  }
}

template <class T, int kD, bool kSpecial>
__global__ __launch_bounds__(kThreads, 2) void forward_mma_kernel(const __grid_constant__ AttentionParams p) {
  extern __shared__ __align__(1024) unsigned char memory[];
  const uint32_t base = shared_address(memory);
  const Tile<T, kD> queries{base};
  const auto stage = [&](int n) { return Tile<T, kD>{base + (kQueries + n * 2 * kKeys) * kD * 2}; };
  const auto values_of = [](const Tile<T, kD>& keys) { return Tile<T, kD>{keys.base + kKeys * kD * 2}; };

  const int tiles = (p.seq_q + kQueries - 1) / kQueries;
  const int tile = tiles - 1 - static_cast<int>(blockIdx.x % tiles);
  const int head = static_cast<int>(blockIdx.x / tiles % p.n_heads);
  const int b = static_cast<int>(blockIdx.x / tiles / p.n_heads);
  const int kv_head = head / p.group;
  const int q0 = tile * kQueries;
  const int q1 = min(q0 + kQueries, p.seq_q);
  const T* q = static_cast<const T*>(p.q) + p.q_at.at(b, q0, head);
  const T* k = static_cast<const T*>(p.k) + p.k_at.at(b, 0, kv_head);
  const T* v = static_cast<const T*>(p.v) + p.v_at.at(b, 0, kv_head);

  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp_row = static_cast<int>(threadIdx.x) / 32 * kWarpRows;
  const int query = q0 + warp_row + lane / 4;  // the lane's first row
  const int column = lane % 4 * 2;             // and column
  const WarpReach reach(p.mask, q0 + warp_row, min(q0 + warp_row + kWarpRows, q1));
  const float sink = p.sinks == nullptr ? kLowest : p.sinks[head];
  // Scores as they come are in units of scale · log2(e), which is positive; those that were adjusted, of 1.
  const float unit = kSpecial ? 1.0F : p.scale * kLog2E;
  RowState rows;
#pragma unroll
  for (int n = 0; n < kHalves; ++n) {
    rows.most[n] = fmaxf(sink * kLog2E / unit, kLowest);
    rows.sum[n] = sink > kLowest && lane % 4 == 0 ? 1.0F : 0.0F;
    const int row = query + n / 2 * 16 + n % 2 * 8;
    rows.seen[n] = row < q1 ? p.mask.keys(row) : Range{0, 0};
  }
  Sums<kRowTiles, kD / 8> y;
  clear<kRowTiles, kD / 8>(y);

  const int k_end = min(p.mask.keys(q1 - 1).end, p.seq_k);
  const auto next_tile = [&](int k0) {
    while (kSpecial && !p.mask.ranges_suffice && k0 < k_end &&
           p.mask.coverage(q0, q1, k0, min(k0 + kKeys, p.seq_k)) == Coverage::none) {
      k0 += kKeys;
    }
    return k0;
  };
  const auto fill = [&](const Tile<T, kD>& to, int k0) {
    to.template fill<kKeys, kThreads>(k + k0 * p.k_at.seq, p.k_at.seq, p.seq_k - k0, p.d_qk, p.packs);
    values_of(to).template fill<kKeys, kThreads>(v + k0 * p.v_at.seq, p.v_at.seq, p.seq_k - k0, p.d_v, p.packs);
  };
  queries.template fill<kQueries, kThreads>(q, p.q_at.seq, q1 - q0, p.d_qk, p.packs);
  commit_copies();
  int k0 = next_tile(max(p.mask.keys(q0).begin, 0) / kKeys * kKeys);
  if (k0 < k_end) fill(stage(0), k0);
  commit_copies();
  constexpr bool kLoaded = kD == 64;  // wider ones leave no registers for it
  LeftOperand<T, kD, kRowTiles> loaded;
  if constexpr (kLoaded) {
    wait_for_copies<1>();
    __syncthreads();
    loaded.load(queries, warp_row);
  }
  for (int n = 0; k0 < k_end; ++n) {
    const int next = next_tile(k0 + kKeys);
    wait_for_copies();
    __syncthreads();  // this stage is there for all, the other one no longer used by any
    if (next < k_end) {
      fill(stage((n + 1) % 2), next);
      commit_copies();
    }
    const Tile<T, kD> keys = stage(n % 2);
    const Coverage coverage = kSpecial ? reach.of(p.mask, k0, k0 + kKeys) : reach.of_ranges(k0, k0 + kKeys);
    if (coverage != Coverage::none) {
      Sums<kRowTiles, kBlocks> s;
      if constexpr (kLoaded) {
        multiply_loaded<T, kD, kRowTiles, kBlocks>(s, loaded, keys, 0);
      } else {
        multiply_tiles<T, kD, kRowTiles, kBlocks>(s, queries, warp_row, keys, 0);
      }
      if constexpr (kSpecial) adjust(p, p.bias_of(head), query, k0 + column, s);
      if (coverage == Coverage::partial) {
        hide(rows, k0 + column, s);
        if constexpr (kSpecial) {
          if (!p.mask.ranges_suffice) hide_holes(p.mask, query, k0 + column, s);
        }
      }
      softmax<kD>(unit, rows, s, y);
      if constexpr (kSpecial) {
        if (p.dropout.active()) drop(p, b, head, query, k0 + column, s);
      }
      add_product_of<T, kD, kRowTiles, kBlocks>(y, s, values_of(keys), 0);
    }
    k0 = next;
  }
  wait_for_copies();  // of the queries, where there was no key
  __syncthreads();
#pragma unroll
  for (int n = 0; n < kHalves; ++n) {
    float sum = rows.sum[n];
    sum += __shfl_xor_sync(lamina::cuda::kAllLanes, sum, 1);
    sum += __shfl_xor_sync(lamina::cuda::kAllLanes, sum, 2);
    const float inverse = sum != 0 ? 1.0F / sum : 0.0F;
#pragma unroll
    for (int c = 0; c < kD / 8; ++c) {
      y[n / 2][c][n % 2 * 2] *= inverse;
      y[n / 2][c][n % 2 * 2 + 1] *= inverse;
    }
    const int row = query + n / 2 * 16 + n % 2 * 8;
    if (lane % 4 == 0 && row < q1) {
      p.greatest[p.statistics_row(b, head) + row] = rows.most[n] * unit * kLn2;
      p.inverse[p.statistics_row(b, head) + row] = inverse;
    }
  }
  T* to = static_cast<T*>(p.y) + p.y_at.at(b, q0 + warp_row, head);
  store_sums<T, kD, kRowTiles>(y, queries, warp_row, to, p.y_at.seq, q1 - q0 - warp_row, p.d_v, p.packs);
}

template <class T, int kD>
void launch(const AttentionParams& p, cudaStream_t stream) {
  constexpr int kBytes = (kQueries + 4 * kKeys) * kD * 2;
  const int64_t blocks = static_cast<int64_t>((p.seq_q + kQueries - 1) / kQueries) * p.n_heads * p.batch;
  LAMINA_CHECK(blocks < int64_t{1} << 31, "attention: ", p.batch, " rows of ", p.n_heads, " heads and ", p.seq_q,
               " queries are more blocks than one launch takes; use a smaller batch");
  if (blocks == 0) return;
  const auto kernel = is_special(p) ? forward_mma_kernel<T, kD, true> : forward_mma_kernel<T, kD, false>;
  LAMINA_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes), "attention");
  kernel<<<static_cast<unsigned>(blocks), kThreads, kBytes, stream>>>(p);
  lamina::cuda::check_launch("attention");
}

}  // namespace

template <class T>
void forward_by_mma(const AttentionParams& p, cudaStream_t stream) {
  if (p.d_qk <= 64 && p.d_v <= 64) {
    launch<DeviceType<T>, 64>(p, stream);
  } else {
    launch<DeviceType<T>, 128>(p, stream);
  }
}

template void forward_by_mma<bf16>(const AttentionParams&, cudaStream_t);
template void forward_by_mma<f16>(const AttentionParams&, cudaStream_t);

}  // namespace lamina::ops::cuda
