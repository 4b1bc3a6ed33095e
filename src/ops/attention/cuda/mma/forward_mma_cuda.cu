// Forward with mma.sync, for GPUs other than Hopper and for cases that wgmma/forward_wgmma_cuda.cu does not support.
// bf16 and f16, heads up to 128 wide (padded to 64 or 128).
//
// A block of four warps has 128 queries of one head, 32 per warp, so each key or value fragment read from shared memory
// feeds two row tiles. It iterates over tiles of 64 keys, double-buffered in shared memory. Scores, weights, softmax
// statistics and the output accumulator stay in registers. Weights are computed with exp2. Tiles that no query sees are
// never loaded. Warps skip the parts of a tile that their own rows cannot see, and only warps at the edge of the mask
// test single scores. Blocks of one head are adjacent, so its keys hit the L2 cache; the longest blocks start first.
// There are four versions of the kernel (ScoreFeatures), so plain scores do not pay for the instructions and registers
// of the other features.
#include "lamina/ops/attention/cuda/softmax.cuh"

namespace lamina::ops::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kRowTiles = 2;               // tiles of 16 queries per warp
constexpr int kWarpRows = kRowTiles * 16;  // 32
constexpr int kQueries = kThreads / 32 * kWarpRows;
constexpr int kKeys = 64;
/// Keys whose scores are in registers at once, limited by the number of registers.
template <int kD>
constexpr int kPartOf = kD == 64 ? kKeys : kKeys / 2;

using Coverage = DeviceMask::Coverage;

template <class T, int kD, ScoreFeatures kWork>
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
  const int query = q0 + warp_row + lane / 4;  // first row of the lane
  const int column = lane % 4 * 2;             // first column of the lane
  const WarpKeyRange reach(p.mask, q0 + warp_row, min(q0 + warp_row + kWarpRows, q1));
  constexpr bool kGeneral = has_general_scores(kWork);
  const float unit = p.unit;
  const HeadBias bias = kGeneral ? p.bias_of(head) : HeadBias{};
  const uint64_t stream = dropout_stream<kWork>(p);
  SoftmaxRows<kRowTiles> rows(p, head);
  AccumulatorTile<kRowTiles, kD / 8> y;
  clear<kRowTiles, kD / 8>(y);

  const int k_end = min(p.mask.keys(q1 - 1).end, p.seq_k);
  const auto next_tile = [&](int k0) {
    return !kGeneral || p.mask.is_contiguous_range ? k0 : p.mask.next_keys(q0, q1, k0, k_end, kKeys);
  };
  const auto fill = [&](const Tile<T, kD>& to, int k0) {
    to.template fill<kKeys, kThreads>(k + k0 * p.k_at.seq, p.k_at.seq, p.seq_k - k0, p.d_qk, p.vectorized);
    values_of(to).template fill<kKeys, kThreads>(v + k0 * p.v_at.seq, p.v_at.seq, p.seq_k - k0, p.d_v, p.vectorized);
  };
  queries.template fill<kQueries, kThreads>(q, p.q_at.seq, q1 - q0, p.d_qk, p.vectorized);
  cp_async_commit();
  int k0 = next_tile(max(p.mask.keys(q0).begin, 0) / kKeys * kKeys);
  if (k0 < k_end) fill(stage(0), k0);
  cp_async_commit();
  // Whether the queries are kept in registers; wider heads leave no registers for them.
  constexpr bool kLoaded = kD == 64;
  LeftOperand<T, kD, kRowTiles> loaded;
  if constexpr (kLoaded) {
    cp_async_wait<1>();
    __syncthreads();
    loaded.load(queries, warp_row);
  }
  for (int n = 0; k0 < k_end; ++n) {
    const int next = next_tile(k0 + kKeys);
    cp_async_wait();
    __syncthreads();  // this stage is filled, and the other one is no longer read
    if (next < k_end) {
      fill(stage((n + 1) % 2), next);
      cp_async_commit();
    }
    const Tile<T, kD> keys = stage(n % 2);
    constexpr int kPart = kPartOf<kD>;
    constexpr int kBlocks = kPart / 8;
#pragma unroll 1
    for (int part = 0; part < kKeys; part += kPart) {
      const int first = k0 + part;
      const WarpVisibility view = reach.of<kGeneral>(p.mask, first, first + kPart);
      if (view.range == Coverage::none) continue;
      const ScoreIndex place{b, head, query, first + column};
      DropoutMaskOf<kWork, false, kRowTiles, kBlocks> kept(p, stream, place);
      AccumulatorTile<kRowTiles, kBlocks> s;
      float shift = 0;
      if constexpr (kGeneral) {
        shift = start_scores<false, kRowTiles, kBlocks>(p, bias, place.query, place.key, s);
      } else {
        clear<kRowTiles, kBlocks>(s);
      }
      if constexpr (kLoaded) {
        multiply_loaded<T, kD, kRowTiles, kBlocks>(s, loaded, keys, part);
      } else {
        multiply_tiles<T, kD, kRowTiles, kBlocks>(s, queries, warp_row, keys, part);
      }
      if constexpr (kGeneral) {
        shift +=
            apply_soft_cap<false, kRowTiles, kBlocks>(p, bias, place.query, place.key, s, [](int, int, int, float) {});
      }
      if (view.range == Coverage::partial) mask_scores<kRowTiles, kBlocks>(p, place.query, place.key, view.keys, s);
      if (view.holes) mask_pattern_holes<false, kRowTiles, kBlocks>(p.mask, place.query, place.key, -INFINITY, s);
      const RowValues<kRowTiles> shifts{shift, shift, shift, shift};
      RowValues<kRowTiles> found;
      rows.find_maxima<kBlocks>(shifts, s, found);
      rows.raise<kD / 8>(unit, found, y);
      rows.weigh<kBlocks>(unit, shifts, s);
      kept.complete(p, stream, place);
      for_places<kRowTiles, kBlocks>([&](int m, int c, int i) { s[m][c][i] = kept.at(m, c, i) ? s[m][c][i] : 0.0F; });
      add_product_of<T, kD, kRowTiles, kBlocks>(y, s, values_of(keys), part);
    }
    k0 = next;
  }
  cp_async_wait();  // the queries may still be in flight if there were no keys
  __syncthreads();
  rows.finish<kD / 8>(p, p.statistics_row(b, head), query, q1, has_dropout(kWork) ? p.dropout.factor : 1.0F, y);
  T* to = static_cast<T*>(p.y) + p.y_at.at(b, q0 + warp_row, head);
  store_sums<T, kD, kRowTiles>(y, queries, warp_row, to, p.y_at.seq, q1 - q0 - warp_row, p.d_v, p.vectorized);
}

template <class T, int kD>
void launch(const AttentionParams& p, cudaStream_t stream) {
  constexpr int kBytes = (kQueries + 4 * kKeys) * kD * 2;
  const int64_t blocks = static_cast<int64_t>((p.seq_q + kQueries - 1) / kQueries) * p.n_heads * p.batch;
  const auto kernel =
      kernel_for(score_features(p), [](auto work) { return forward_mma_kernel<T, kD, decltype(work)::value>; });
  launch_heads(kernel, blocks, kThreads, kBytes, p, stream);
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
