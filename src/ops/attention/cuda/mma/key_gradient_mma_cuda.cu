// dk and dv of the two-pass backward with mma.sync. A block has a tile of keys of one KV head and iterates over the
// queries of all heads that share this KV head. Scores are computed transposed, as keys × queries, so that weights and
// score gradients can be the left operands of dv and dk directly from registers.
#include "lamina/ops/attention/cuda/mma/backward_mma.cuh"

namespace lamina::ops::cuda {
namespace {

using Coverage = DeviceMask::Coverage;

/// Copies one float to shared memory with cp.async; copies zero if not `inside`.
__device__ void copy_number(uint32_t to, const float* from, bool inside) {
  const int bytes = inside ? 4 : 0;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;\n" ::"r"(to), "l"(from), "r"(bytes));
}

/// Starts copying a tile of queries and their dy to shared memory at `to`, and their base and delta to `numbers`, with
/// cp.async.
template <class T, int kD>
__device__ __forceinline__ void fill_stage(const AttentionParams& p, int b, int head, int q0, uint32_t to,
                                           const float* numbers) {
  const Tile<T, kD> queries{to};
  const Tile<T, kD> dys{to + kStreamedRows * kD * 2};
  queries.template fill<kStreamedRows, kGradientThreads>(static_cast<const T*>(p.q) + p.q_at.at(b, q0, head),
                                                         p.q_at.seq, p.seq_q - q0, p.d_qk, p.vectorized);
  dys.template fill<kStreamedRows, kGradientThreads>(static_cast<const T*>(p.dy) + p.y_at.at(b, q0, head), p.y_at.seq,
                                                     p.seq_q - q0, p.d_v, p.vectorized);
  const int t = static_cast<int>(threadIdx.x) % kStreamedRows;
  const float* from = static_cast<int>(threadIdx.x) < kStreamedRows ? p.base : p.delta;
  const bool inside = q0 + t < p.seq_q;
  copy_number(shared_address(numbers + threadIdx.x), from + p.statistics_row(b, head) + (inside ? q0 + t : 0), inside);
}

template <class T, int kD, ScoreFeatures kWork>
__global__ __launch_bounds__(kGradientThreads,
                             2) void key_gradient_mma_kernel(const __grid_constant__ AttentionParams p) {
  constexpr int kRowTiles = kRowTilesOf<kD>;
  constexpr int kRows = kRowsOf<kD>;
  constexpr int kColumns = 32;  // queries per iteration
  constexpr int kBlocks = kColumns / 8;
  constexpr int kStageBytes = 2 * kStreamedRows * kD * 2;
  extern __shared__ __align__(1024) unsigned char memory[];
  const uint32_t start = shared_address(memory);
  const Tile<T, kD> keys{start};
  const Tile<T, kD> values{start + kRows * kD * 2};
  const uint32_t stages = start + 2 * kRows * kD * 2;
  const auto* numbers =
      reinterpret_cast<const float*>(memory + 2 * kRows * kD * 2 + 2 * kStageBytes);  // [2][2][kStreamedRows]

  const int tiles = (p.seq_k + kRows - 1) / kRows;
  const int k0 = static_cast<int>(blockIdx.x % tiles) * kRows;
  const int kv_head = static_cast<int>(blockIdx.x / tiles % p.n_kv_heads);
  const int b = static_cast<int>(blockIdx.x / tiles / p.n_kv_heads);
  const int k1 = min(k0 + kRows, p.seq_k);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp_row = static_cast<int>(threadIdx.x) / 32 * 16 * kRowTiles;
  const int key = k0 + warp_row + lane / 4;  // first row of the lane
  const int column = lane % 4 * 2;           // first column of the lane

  const int q_end = min(p.mask.queries(k1 - 1).end, p.seq_q);
  const int q_begin = max(p.mask.queries(k0).begin, 0) / kStreamedRows * kStreamedRows;
  constexpr bool kGeneral = has_general_scores(kWork);
  const uint64_t stream = dropout_stream<kWork>(p);
  const auto seen = [&](int q0) {
    return !kGeneral || p.mask.is_contiguous_range ||
           p.mask.next_keys(q0, min(q0 + kStreamedRows, p.seq_q), k0, k1, kRows) < k1;
  };
  // Steps run over all query heads of the group: step n is tile n % steps of head n / steps.
  const int steps = q_begin < q_end ? (q_end - q_begin + kStreamedRows - 1) / kStreamedRows : 0;
  const auto next_step = [&](int n) {
    while (n < steps * p.group && !seen(q_begin + n % steps * kStreamedRows)) ++n;
    return n;
  };
  const auto fill = [&](int stage, int n) {
    const int head = kv_head * p.group + n / steps;
    const int q0 = q_begin + n % steps * kStreamedRows;
    fill_stage<T, kD>(p, b, head, q0, stages + stage * kStageBytes, numbers + stage * 2 * kStreamedRows);
  };

  AccumulatorTile<kRowTiles, kD / 8> dk;
  AccumulatorTile<kRowTiles, kD / 8> dv;
  clear<kRowTiles, kD / 8>(dk);
  clear<kRowTiles, kD / 8>(dv);
  keys.template fill<kRows, kGradientThreads>(static_cast<const T*>(p.k) + p.k_at.at(b, k0, kv_head), p.k_at.seq,
                                              k1 - k0, p.d_qk, p.vectorized);
  values.template fill<kRows, kGradientThreads>(static_cast<const T*>(p.v) + p.v_at.at(b, k0, kv_head), p.v_at.seq,
                                                k1 - k0, p.d_v, p.vectorized);
  int n = next_step(0);
  if (n < steps * p.group) fill(0, n);
  cp_async_commit();
  for (int stage = 0; n < steps * p.group; stage ^= 1) {
    const int next = next_step(n + 1);
    cp_async_wait();
    __syncthreads();  // this stage is filled, and the other one is no longer read
    if (next < steps * p.group) {
      fill(stage ^ 1, next);
      cp_async_commit();
    }
    const int head_index = kv_head * p.group + n / steps;
    const HeadBias bias = kGeneral ? p.bias_of(head_index) : HeadBias{};
    const Tile<T, kD> queries{stages + stage * kStageBytes};
    const Tile<T, kD> dys{queries.base + kStreamedRows * kD * 2};
    const float* base = numbers + stage * 2 * kStreamedRows;
    const float* delta = base + kStreamedRows;
#pragma unroll 1
    for (int part = 0; part < kStreamedRows; part += kColumns) {
      const int q0 = q_begin + n % steps * kStreamedRows + part;
      const int warp_key = k0 + warp_row;
      const WarpKeyRange reach(p.mask, q0, min(q0 + kColumns, p.seq_q));
      WarpVisibility view = reach.of<kGeneral>(p.mask, warp_key, min(warp_key + 16 * kRowTiles, p.seq_k));
      if (warp_key >= p.seq_k || view.range == Coverage::none) continue;
      if (q0 + kColumns > p.seq_q) view.range = Coverage::partial;
      const ScoreIndex place{b, head_index, q0 + column, key};
      DropoutMaskOf<kWork, true, kRowTiles, kBlocks> kept(p, stream, place);
      AccumulatorTile<kRowTiles, kBlocks> s;
      AccumulatorTile<kRowTiles, kBlocks> ds;
      float shift = 0;
      if constexpr (kGeneral) {
        shift = start_scores<true, kRowTiles, kBlocks>(p, bias, place.query, place.key, s);
      } else {
        clear<kRowTiles, kBlocks>(s);
      }
      clear<kRowTiles, kBlocks>(ds);
      multiply_tiles<T, kD, kRowTiles, kBlocks>(s, keys, warp_row, queries, part);
      multiply_tiles<T, kD, kRowTiles, kBlocks>(ds, values, warp_row, dys, part);
      kept.complete(p, stream, place);
      const auto hide_unseen = [&](AccumulatorTile<kRowTiles, kBlocks>& weights) {
        if (view.range == Coverage::partial) hide_by_keys<kRowTiles, kBlocks>(p, place, weights);
        if (view.holes) mask_pattern_holes<true, kRowTiles, kBlocks>(p.mask, place.query, place.key, 0.0F, weights);
      };
      find_gradients_by_keys<kWork, kRowTiles, kBlocks>(p, bias, place, kept, shift, base + part + column,
                                                        delta + part + column, s, ds, hide_unseen);
      add_product_of<T, kD, kRowTiles, kBlocks>(dv, s, dys, part);
      add_product_of<T, kD, kRowTiles, kBlocks>(dk, ds, queries, part);
    }
    n = next;
  }
  cp_async_wait();  // the keys may still be in flight if there were no queries
  __syncthreads();
  scale_sums<kRowTiles, kD / 8>(dk, p.scale);
  if (has_dropout(kWork)) scale_sums<kRowTiles, kD / 8>(dv, p.dropout.factor);
  const int row = k0 + warp_row;
  const int count = k1 - row;
  store_sums<T, kD, kRowTiles>(dk, keys, warp_row, static_cast<T*>(p.dk) + p.dk_at.at(b, row, kv_head), p.dk_at.seq,
                               count, p.d_qk, p.vectorized);
  store_sums<T, kD, kRowTiles>(dv, values, warp_row, static_cast<T*>(p.dv) + p.dv_at.at(b, row, kv_head), p.dv_at.seq,
                               count, p.d_v, p.vectorized);
}

template <class T, int kD>
void launch(const AttentionParams& p, cudaStream_t stream) {
  const int64_t blocks = static_cast<int64_t>((p.seq_k + kRowsOf<kD> - 1) / kRowsOf<kD>) * p.n_kv_heads * p.batch;
  const auto kernel =
      kernel_for(score_features(p), [](auto work) { return key_gradient_mma_kernel<T, kD, decltype(work)::value>; });
  launch_heads(kernel, blocks, kGradientThreads, kGradientBytes<kD> + 4 * kStreamedRows * 4, p, stream);
}

}  // namespace

template <class T>
void key_gradients_by_mma(const AttentionParams& p, cudaStream_t stream) {
  if (p.d_qk <= 64 && p.d_v <= 64) {
    launch<DeviceType<T>, 64>(p, stream);
  } else {
    launch<DeviceType<T>, 128>(p, stream);
  }
}

template void key_gradients_by_mma<bf16>(const AttentionParams&, cudaStream_t);

}  // namespace lamina::ops::cuda
