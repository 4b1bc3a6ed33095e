// dq and the gradient of the T5 bias (dt5) of the two-pass backward on Hopper's tensor cores (wgmma). A warpgroup has
// 64 queries of one head and iterates over the keys, as forward does.
#include "lamina/ops/attention/cuda/distance_sums.cuh"
#include "lamina/ops/attention/cuda/wgmma/backward_wgmma.cuh"

namespace lamina::ops::cuda {
/// A named namespace with only inline functions, so that builds for other GPUs have no unused functions.
namespace query_gradient {

using Distances = DistanceSums<kTileRows / 8>;
static_assert((2 * Distances::half(kMaxDistances) + 31) / 32 * kMostMmaBuckets * 4 <= 2 * kStageBytes,
              "the bucket sums reuse the shared memory of the keys");

/// Shared memory of one stage: a tile of keys and values.
template <class T>
struct Stage {
  Tile<T, kHeadWidth> keys;
  Tile<T, kHeadWidth> values;

  __device__ Stage(uint32_t tiles, int index) : keys{tiles + index * kStageBytes}, values{keys.base + kTileBytes} {}
};

template <class T, ScoreFeatures kWork, bool kHoles>
__global__ __launch_bounds__(kGroupThreads,
                             kBlocksPerSm) void query_gradient_wgmma_kernel(const __grid_constant__ AttentionParams p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr bool kGeneral = has_general_scores(kWork);
  extern __shared__ unsigned char shared[];
  unsigned char* memory = shared + (1024 - shared_address(shared) % 1024) % 1024;
  const Tile<T, kHeadWidth> queries{shared_address(memory)};
  const Tile<T, kHeadWidth> dys{queries.base + kTileBytes};
  const uint32_t tiles = dys.base + kTileBytes;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  auto* distance_memory = reinterpret_cast<float*>(memory + kTwoPassBytes - 1024);
  Distances distances(distance_memory + warp * Distances::floats(p.t5_flat_from), p.t5_flat_from);

  const int blocks = (p.seq_q + kTileRows - 1) / kTileRows;
  const int block = blocks - 1 - static_cast<int>(blockIdx.x % blocks);
  const int head = static_cast<int>(blockIdx.x / blocks % p.n_heads);
  const int b = static_cast<int>(blockIdx.x / blocks / p.n_heads);
  const int q0 = block * kTileRows;
  const int q1 = min(q0 + kTileRows, p.seq_q);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp_row = warp * 16;
  const int query = q0 + warp_row + lane / 4;  // first row of the lane
  const int column = lane % 4 * 2;             // first column of the lane
  const WarpKeyRange reach(p.mask, q0 + warp_row, min(q0 + warp_row + 16, q1));
  const HeadBias bias = kGeneral ? p.bias_of(head) : HeadBias{};
  const uint64_t stream = dropout_stream<kWork>(p);
  const QueryRows<1> rows(p, b, head, query, q1);
  const bool by_distance = kGeneral && p.dt5 != nullptr;
  if (by_distance) distances.begin();

  const int k_end = min(p.mask.keys(q1 - 1).end, p.seq_k);
  const auto next_tile = [&](int k0) { return !kHoles ? k0 : p.mask.next_keys(q0, q1, k0, k_end, kTileRows); };
  TileSource<T>(static_cast<const T*>(p.q) + p.q_at.at(b, 0, head), p.q_at.seq, p.seq_q, p.d_qk, p.vectorized)
      .fill(queries, q0);
  TileSource<T>(static_cast<const T*>(p.dy) + p.y_at.at(b, 0, head), p.y_at.seq, p.seq_q, p.d_v, p.vectorized)
      .fill(dys, q0);
  const int kv_head = head / p.group;
  const TileSource<T> k_source(static_cast<const T*>(p.k) + p.k_at.at(b, 0, kv_head), p.k_at.seq, p.seq_k, p.d_qk,
                               p.vectorized);
  const TileSource<T> v_source(static_cast<const T*>(p.v) + p.v_at.at(b, 0, kv_head), p.v_at.seq, p.seq_k, p.d_v,
                               p.vectorized);
  const auto fill = [&](const Stage<T>& stage, int from) {
    k_source.fill(stage.keys, from);
    v_source.fill(stage.values, from);
  };
  int k0 = next_tile(max(p.mask.keys(q0).begin, 0) / kTileRows * kTileRows);
  if (k0 < k_end) fill(Stage<T>(tiles, 0), k0);
  cp_async_commit();
  const uint64_t own_queries = smem_descriptor(queries.base);
  const uint64_t own_dys = smem_descriptor(dys.base);
  Accumulator64 dq;
  clear<1, kHeadWidth / 8>(dq);
#pragma unroll 1
  for (int index = 0; k0 < k_end; index ^= 1) {
    const int next = next_tile(k0 + kTileRows);
    cp_async_wait();
    fence_async_proxy();
    __syncthreads();  // this stage is filled, and the other one is no longer read
    if (next < k_end) fill(Stage<T>(tiles, index ^ 1), next);
    cp_async_commit();
    const Stage<T> stage(tiles, index);
    const ScoreIndex place{b, head, query, k0 + column};
    const uint64_t keys = smem_descriptor(stage.keys.base);
    const uint64_t values = smem_descriptor(stage.values.base);
    Accumulator64 s;
    Accumulator64 ds;
    float shift[2] = {};
    bool biased = false;
    if constexpr (kGeneral) biased = begin_scores<false>(p, bias, q0, k0, place, s, shift);
    wgmma_fence();
    multiply_rows<T>(s, own_queries, keys, biased);
    multiply_rows<T>(ds, own_dys, values, false);
    finish_products();
    fence_registers<kTileRows / 8>(s);
    fence_registers<kTileRows / 8>(ds);
    const bool cut = reach.last.begin > k0 || reach.first.end < k0 + kTileRows;
    HalfOperand gradients[2];
#pragma unroll
    for (int right = 0; right < 2; ++right) {
      const int further = right * kHalfColumns;
      const ScoreIndex its{b, head, query, place.key + further};
      DropoutMaskOf<kWork, false, 1, kHalfBlocks> kept(p, stream, its);
      kept.complete(p, stream, its);
      const auto hide = [&](HalfSums& sums) {
        if (cut) hide_by_queries<1, kHalfBlocks>(p, its, sums);
        if constexpr (kHoles) hide_cell<false>(p.mask, q0 + warp_row, k0 + further, its, sums);
      };
      HalfSums& half_ds = half_of_sums(ds, right);
      find_gradients_by_queries<kWork, 1, kHalfBlocks>(p, bias, its, kept, shift[right], rows, half_of_sums(s, right),
                                                       half_ds, hide);
      gradients[right].pack<T>(half_ds);
      wgmma_fence();
      gradients[right].multiply<T>(dq, keys + right * kHalfColumns / 16 * kStepMnMajor);
      wgmma_commit();
    }
    if constexpr (kGeneral) {
      if (by_distance) distances.add(ds, k0 - (q0 + warp_row + p.mask.offset));
    }
    wgmma_wait();
    fence_registers<kHeadWidth / 8>(dq);
    gradients[0].fence_registers();
    gradients[1].fence_registers();
    k0 = next;
  }
  if (by_distance) distances.finish();
  cp_async_wait();
  __syncthreads();
  if (by_distance) {
    float* out = p.dt5 + ((static_cast<int64_t>(b) * p.n_heads + head) * blocks + block) * p.t5_buckets;
    auto* room = reinterpret_cast<float*>(memory + 2 * kTileBytes);
    store_buckets<kTileRows / 8, kGroupThreads>(p, distance_memory, room, out);
  }
  scale_sums<1, kHeadWidth / 8>(dq, p.scale);
  const int row = q0 + warp_row;
  store_sums<T, kHeadWidth, 1>(dq, queries, warp_row, static_cast<T*>(p.dq) + p.dq_at.at(b, row, head), p.dq_at.seq,
                               q1 - row, p.d_qk, p.vectorized);
#endif
}

}  // namespace query_gradient

template <class T>
void query_gradients_by_wgmma(const AttentionParams& p, cudaStream_t stream) {
  using query_gradient::query_gradient_wgmma_kernel;
  using D = DeviceType<T>;
  const int64_t blocks = static_cast<int64_t>((p.seq_q + kTileRows - 1) / kTileRows) * p.n_heads * p.batch;
  const auto kernel = choose_work(score_features(p), !p.mask.is_contiguous_range, [](auto work, auto holes) {
    return query_gradient_wgmma_kernel<D, decltype(work)::value, decltype(holes)::value>;
  });
  const int warp_floats = p.dt5 != nullptr ? query_gradient::Distances::floats(p.t5_flat_from) : 0;
  launch_heads(kernel, blocks, kGroupThreads, kTwoPassBytes + kGroupThreads / 32 * warp_floats * 4, p, stream);
}

template void query_gradients_by_wgmma<bf16>(const AttentionParams&, cudaStream_t);

}  // namespace lamina::ops::cuda
