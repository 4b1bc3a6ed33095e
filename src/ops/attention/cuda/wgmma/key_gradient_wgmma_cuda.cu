// dk and dv of the two-pass backward on Hopper's tensor cores (wgmma). A warpgroup has 64 keys of one KV head and
// iterates over the queries of all heads that share this KV head. Scores are computed transposed, as keys × queries, so
// that weights and score gradients can be the left operands of dv and dk directly from registers.
#include "lamina/ops/attention/cuda/wgmma/backward_wgmma.cuh"

namespace lamina::ops::cuda {
/// A named namespace with only inline functions, so that builds for other GPUs have no unused functions.
namespace key_gradient {

/// Copies one float to shared memory with cp.async.
__device__ inline void copy_number(uint32_t to, const float* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;\n" ::"r"(to), "l"(from));
}

/// Shared memory of one stage: a tile of queries with its dy and statistics.
template <class T>
struct Stage {
  Tile<T, kHeadWidth> queries;
  Tile<T, kHeadWidth> dys;
  float* base;  // [kTileRows]
  float* delta;

  __device__ Stage(uint32_t tiles, float* numbers, int index)
      : queries{tiles + index * kStageBytes},
        dys{queries.base + kTileBytes},
        base(numbers + index * 2 * kTileRows),
        delta(base + kTileRows) {}
};

/// The global memory from which the stages of a head are filled.
template <class T>
struct StageSource {
  TileSource<T> queries;
  TileSource<T> dys;
  const float* number;  // base or delta at position 0, plus this thread's row
  int seq;

  __device__ StageSource(const AttentionParams& p, int b, int head)
      : queries(static_cast<const T*>(p.q) + p.q_at.at(b, 0, head), p.q_at.seq, p.seq_q, p.d_qk, p.vectorized),
        dys(static_cast<const T*>(p.dy) + p.y_at.at(b, 0, head), p.y_at.seq, p.seq_q, p.d_v, p.vectorized),
        number((is_base() ? p.base : p.delta) + p.statistics_row(b, head) + row()),
        seq(p.seq_q) {}
  __device__ void fill(const Stage<T>& stage, int q0) const {
    queries.fill(stage.queries, q0);
    dys.fill(stage.dys, q0);
    float* to = stage.base + threadIdx.x;
    if (q0 + row() < seq) {
      copy_number(shared_address(to), number + q0);
    } else {
      *to = is_base() ? INFINITY : 0.0F;  // with these values the weights become 0
    }
  }

 private:
  static_assert(kGroupThreads == 2 * kTileRows);
  __device__ static bool is_base() { return threadIdx.x < kTileRows; }
  __device__ static int row() { return static_cast<int>(threadIdx.x) % kTileRows; }
};

template <class T, ScoreFeatures kWork, bool kHoles>
__global__ __launch_bounds__(kGroupThreads,
                             kBlocksPerSm) void key_gradient_wgmma_kernel(const __grid_constant__ AttentionParams p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr bool kGeneral = has_general_scores(kWork);
  extern __shared__ unsigned char shared[];
  unsigned char* memory = shared + (1024 - shared_address(shared) % 1024) % 1024;
  const Tile<T, kHeadWidth> keys{shared_address(memory)};
  const Tile<T, kHeadWidth> values{keys.base + kTileBytes};
  const uint32_t tiles = values.base + kTileBytes;
  auto* numbers = reinterpret_cast<float*>(memory + kTwoPassBytes - 1024);

  const int blocks = (p.seq_k + kTileRows - 1) / kTileRows;
  const int k0 = static_cast<int>(blockIdx.x % blocks) * kTileRows;
  const int k1 = min(k0 + kTileRows, p.seq_k);
  const int kv_head = static_cast<int>(blockIdx.x / blocks % p.n_kv_heads);
  const int b = static_cast<int>(blockIdx.x / blocks / p.n_kv_heads);
  const QueryTileIterator iterator(p, kv_head, k0, k1);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp_row = static_cast<int>(threadIdx.x) / 32 * 16;
  const int warp_key = k0 + warp_row;
  const int key = warp_key + lane / 4;  // first row of the lane
  const int column = lane % 4 * 2;      // first column of the lane
  const uint64_t stream = dropout_stream<kWork>(p);

  TileSource<T>(static_cast<const T*>(p.k) + p.k_at.at(b, 0, kv_head), p.k_at.seq, p.seq_k, p.d_qk, p.vectorized)
      .fill(keys, k0);
  TileSource<T>(static_cast<const T*>(p.v) + p.v_at.at(b, 0, kv_head), p.v_at.seq, p.seq_k, p.d_v, p.vectorized)
      .fill(values, k0);
  QueryTile at = iterator.first<kHoles>();
  StageSource<T> source(p, b, at.head);
  if (iterator.has(at)) source.fill(Stage<T>(tiles, numbers, 0), at.q0);
  cp_async_commit();
  const uint64_t own_keys = smem_descriptor(keys.base);
  const uint64_t own_values = smem_descriptor(values.base);
  Accumulator64 dk;
  Accumulator64 dv;
  clear<1, kHeadWidth / 8>(dk);
  clear<1, kHeadWidth / 8>(dv);
#pragma unroll 1
  for (int index = 0; iterator.has(at); index ^= 1) {
    const QueryTile next = iterator.next<kHoles>(at);
    cp_async_wait();
    fence_async_proxy();
    __syncthreads();  // this stage is filled, and the other one is no longer read
    if (iterator.has(next)) {
      if (next.head != at.head) source = StageSource<T>(p, b, next.head);
      source.fill(Stage<T>(tiles, numbers, index ^ 1), next.q0);
    }
    cp_async_commit();
    const Stage<T> stage(tiles, numbers, index);
    const HeadBias bias = kGeneral ? p.bias_of(at.head) : HeadBias{};
    const ScoreIndex place{b, at.head, at.q0 + column, key};
    const uint64_t queries = smem_descriptor(stage.queries.base);
    const uint64_t dys = smem_descriptor(stage.dys.base);
    Accumulator64 s;
    Accumulator64 ds;
    float shift[2] = {};
    bool biased = false;
    if constexpr (kGeneral) biased = begin_scores<true>(p, bias, at.q0, k0, place, s, shift);
    wgmma_fence();
    multiply_rows<T>(s, own_keys, queries, biased);
    multiply_rows<T>(ds, own_values, dys, false);
    finish_products();
    fence_registers<kTileRows / 8>(s);
    fence_registers<kTileRows / 8>(ds);
    const bool cut = at.q0 < iterator.whole.begin || at.q0 + kTileRows > iterator.whole.end;
    HalfOperand weights[2];
    HalfOperand gradients[2];
#pragma unroll
    for (int right = 0; right < 2; ++right) {
      const int further = right * kHalfColumns;
      const ScoreIndex its{b, at.head, place.query + further, key};
      DropoutMaskOf<kWork, true, 1, kHalfBlocks> kept(p, stream, its);
      kept.complete(p, stream, its);
      const auto hide = [&](HalfSums& sums) {
        if (cut) hide_by_keys<1, kHalfBlocks>(p, its, sums);
        if constexpr (kHoles) hide_cell<true>(p.mask, at.q0 + further, warp_key, its, sums);
      };
      HalfSums& half = half_of_sums(s, right);
      HalfSums& half_ds = half_of_sums(ds, right);
      find_gradients_by_keys<kWork, 1, kHalfBlocks>(p, bias, its, kept, shift[right], stage.base + further + column,
                                                    stage.delta + further + column, half, half_ds, hide);
      weights[right].pack<T>(half);
      gradients[right].pack<T>(half_ds);
      wgmma_fence();
      weights[right].multiply<T>(dv, dys + right * kHalfColumns / 16 * kStepMnMajor);
      gradients[right].multiply<T>(dk, queries + right * kHalfColumns / 16 * kStepMnMajor);
      wgmma_commit();
    }
    finish_key_sums(dv, weights, dk, gradients);
    at = next;
  }
  cp_async_wait();  // the keys may still be in flight if there were no queries
  __syncthreads();
  scale_sums<1, kHeadWidth / 8>(dk, p.scale);
  if (has_dropout(kWork)) scale_sums<1, kHeadWidth / 8>(dv, p.dropout.factor);
  store_sums<T, kHeadWidth, 1>(dk, keys, warp_row, static_cast<T*>(p.dk) + p.dk_at.at(b, warp_key, kv_head),
                               p.dk_at.seq, k1 - warp_key, p.d_qk, p.vectorized);
  store_sums<T, kHeadWidth, 1>(dv, values, warp_row, static_cast<T*>(p.dv) + p.dv_at.at(b, warp_key, kv_head),
                               p.dv_at.seq, k1 - warp_key, p.d_v, p.vectorized);
#endif
}

}  // namespace key_gradient

template <class T>
void key_gradients_by_wgmma(const AttentionParams& p, cudaStream_t stream) {
  using key_gradient::key_gradient_wgmma_kernel;
  using D = DeviceType<T>;
  const int64_t blocks = static_cast<int64_t>((p.seq_k + kTileRows - 1) / kTileRows) * p.n_kv_heads * p.batch;
  const auto kernel = choose_work(score_features(p), !p.mask.is_contiguous_range, [](auto work, auto holes) {
    return key_gradient_wgmma_kernel<D, decltype(work)::value, decltype(holes)::value>;
  });
  launch_heads(kernel, blocks, kGroupThreads, kTwoPassBytes + 4 * kTileRows * 4, p, stream);
}

template void key_gradients_by_wgmma<bf16>(const AttentionParams&, cudaStream_t);

}  // namespace lamina::ops::cuda
