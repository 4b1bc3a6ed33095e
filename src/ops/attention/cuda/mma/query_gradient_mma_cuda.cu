// dq and the gradient of the T5 bias (dt5) of the two-pass backward with mma.sync. A block has a tile of queries of one
// head and iterates over the keys, as forward does. Each warp sums the gradient of the T5 buckets in shared memory.
#include "lamina/ops/attention/cuda/mma/backward_mma.cuh"

namespace lamina::ops::cuda {
namespace {

constexpr int kPart = 32;  // keys per iteration
constexpr int kBlocks = kPart / 8;

using Coverage = DeviceMask::Coverage;

// Floats per diagonal of 8×8 blocks, padded so that four diagonals use different banks.
constexpr int kDiagonalFloats = 72;

/// Per-warp sums of score gradients by T5 bucket. Most tiles lie entirely beyond the distance of the last bucket; for
/// these each lane adds to a register. For the other tiles, each lane first adds its 8×8 blocks along block diagonals;
/// then one lane sums each single diagonal, and runs of equal buckets are added up.
struct BucketSums {
  float* sums;  // [buckets]
  float* scratch;
  float held = 0;     // this lane's sum for the last bucket of one side
  int held_side = 0;  // 1: keys after the query, −1: before

  /// Adds the sum that is kept in the register to its bucket.
  __device__ void release(const AttentionParams& p) {
    const float sum = lamina::cuda::warp_sum(held);
    if (held_side != 0 && static_cast<int>(threadIdx.x) % 32 == 0) sums[p.bucket_of(held_side * p.t5_flat_from)] += sum;
    __syncwarp();
    held = 0;
  }

  /// Adds the score gradients of 16·kRowTiles queries, at positions from `position` on, and kPart keys from k0 on.
  template <int kRowTiles>
  __device__ void add(const AttentionParams& p, const AccumulatorTile<kRowTiles, kBlocks>& grads, int position,
                      int k0) {
    const int low = k0 - (position + 16 * kRowTiles - 1);
    const int high = k0 + kPart - 1 - position;
    const int side = low >= p.t5_flat_from ? 1 : high <= -p.t5_flat_from ? -1 : 0;
    if (side == 0) return add_diagonals<kRowTiles>(p, grads, k0 - position);
    if (side != held_side) release(p);
    held_side = side;
    float four[4] = {};
    for_places<kRowTiles, kBlocks>([&](int m, int n, int i) { four[i] += grads[m][n][i]; });
    held += four[0] + four[1] + (four[2] + four[3]);
  }

 private:
  /// Adds a tile along its diagonals. `distance` is key − query of its first row and column.
  template <int kRowTiles>
  __device__ void add_diagonals(const AttentionParams& p, const AccumulatorTile<kRowTiles, kBlocks>& grads,
                                int distance) {
    constexpr int kDiagonals = 2 * kRowTiles + kBlocks - 1;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    float2 along[kDiagonals] = {};
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int n = 0; n < kBlocks; ++n) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float2& to = along[2 * m + half - n + kBlocks - 1];
          to.x += grads[m][n][2 * half];
          to.y += grads[m][n][2 * half + 1];
        }
      }
    }
#pragma unroll
    for (int n = 0; n < kDiagonals; ++n) {
      *reinterpret_cast<float2*>(scratch + n * kDiagonalFloats + 2 * lane) = along[n];
    }
    __syncwarp();
    // Row r and column c of block diagonal n lie 8·(n − kBlocks + 1) + r − c rows below the tile's main diagonal.
    constexpr int kPasses = (8 * (kDiagonals + 1) + 31) / 32;
    float total[kPasses] = {};
    int bucket[kPasses];
    const int below = lane % 8;
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const int n = pass * 4 + lane / 8 - 1;
      bucket[pass] = p.bucket_of(distance - 8 * (n - kBlocks + 1) - below);
#pragma unroll
      for (int r = 0; r < 8; ++r) {
        const int block = r >= below ? n : n + 1;
        const bool inside = block >= 0 && block < kDiagonals;
        total[pass] += inside ? scratch[block * kDiagonalFloats + r * 8 + ((r - below) & 7)] : 0.0F;
      }
    }
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
#pragma unroll
      for (int pass = 0; pass < kPasses; ++pass) {
        const float before = __shfl_up_sync(lamina::cuda::kAllLanes, total[pass], step);
        const int its = __shfl_up_sync(lamina::cuda::kAllLanes, bucket[pass], step);
        if (lane >= step && its == bucket[pass]) total[pass] += before;
      }
    }
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const int next_bucket = __shfl_down_sync(lamina::cuda::kAllLanes, bucket[pass], 1);
      if (lane == 31 || next_bucket != bucket[pass]) sums[bucket[pass]] += total[pass];
      __syncwarp();
    }
  }
};

/// Floats of shared memory per warp.
template <int kRowTiles>
constexpr int kBucketFloats = kMostMmaBuckets + (2 * kRowTiles + kBlocks - 1) * kDiagonalFloats;

/// Writes the gradients of the T5 bias: sums over the warps, in order.
template <int kRowTiles>
__device__ __forceinline__ void store_bucket_sums(const AttentionParams& p, const float* bucket_memory, float* out) {
  for (int n = threadIdx.x; n < p.t5_buckets; n += kGradientThreads) {
    float sum = 0;
    for (int w = 0; w < kGradientWarps; ++w) sum += bucket_memory[w * kBucketFloats<kRowTiles> + n];
    out[n] = sum;
  }
}

template <class T, int kD, ScoreFeatures kWork>
__global__ __launch_bounds__(kGradientThreads,
                             2) void query_gradient_mma_kernel(const __grid_constant__ AttentionParams p) {
  constexpr int kRowTiles = kRowTilesOf<kD>;
  constexpr int kRows = kRowsOf<kD>;
  constexpr bool kGeneral = has_general_scores(kWork);
  constexpr int kStageBytes = 2 * kStreamedRows * kD * 2;
  extern __shared__ __align__(1024) unsigned char memory[];
  const uint32_t start = shared_address(memory);
  const Tile<T, kD> queries{start};
  const Tile<T, kD> dys{start + kRows * kD * 2};
  const uint32_t stages = start + 2 * kRows * kD * 2;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  auto* bucket_memory = reinterpret_cast<float*>(memory + 2 * kRows * kD * 2 + 2 * kStageBytes);
  float* own_buckets = bucket_memory + warp * kBucketFloats<kRowTiles>;
  BucketSums buckets{own_buckets, own_buckets + kMostMmaBuckets};

  const int tiles = (p.seq_q + kRows - 1) / kRows;
  const int tile = tiles - 1 - static_cast<int>(blockIdx.x % tiles);
  const int head_index = static_cast<int>(blockIdx.x / tiles % p.n_heads);
  const int b = static_cast<int>(blockIdx.x / tiles / p.n_heads);
  const int kv_head = head_index / p.group;
  const int q0 = tile * kRows;
  const int q1 = min(q0 + kRows, p.seq_q);
  const T* k = static_cast<const T*>(p.k) + p.k_at.at(b, 0, kv_head);
  const T* v = static_cast<const T*>(p.v) + p.v_at.at(b, 0, kv_head);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp_row = warp * 16 * kRowTiles;
  const int query = q0 + warp_row + lane / 4;  // first row of the lane
  const int column = lane % 4 * 2;             // first column of the lane
  const WarpKeyRange reach(p.mask, q0 + warp_row, min(q0 + warp_row + 16 * kRowTiles, q1));
  const HeadBias bias = kGeneral ? p.bias_of(head_index) : HeadBias{};
  const uint64_t stream = dropout_stream<kWork>(p);
  const QueryRows<kRowTiles> rows(p, b, head_index, query, q1);
  if (kGeneral && p.dt5 != nullptr) {
    for (int n = lane; n < kMostMmaBuckets; n += 32) buckets.sums[n] = 0;
    __syncwarp();
  }
  AccumulatorTile<kRowTiles, kD / 8> dq;
  clear<kRowTiles, kD / 8>(dq);

  const int k_end = min(p.mask.keys(q1 - 1).end, p.seq_k);
  const auto next_tile = [&](int k0) {
    return !kGeneral || p.mask.is_contiguous_range ? k0 : p.mask.next_keys(q0, q1, k0, k_end, kStreamedRows);
  };
  const auto fill = [&](int stage, int k0) {
    const Tile<T, kD> keys{stages + stage * kStageBytes};
    const Tile<T, kD> values{keys.base + kStreamedRows * kD * 2};
    keys.template fill<kStreamedRows, kGradientThreads>(k + k0 * p.k_at.seq, p.k_at.seq, p.seq_k - k0, p.d_qk,
                                                        p.vectorized);
    values.template fill<kStreamedRows, kGradientThreads>(v + k0 * p.v_at.seq, p.v_at.seq, p.seq_k - k0, p.d_v,
                                                          p.vectorized);
  };
  queries.template fill<kRows, kGradientThreads>(static_cast<const T*>(p.q) + p.q_at.at(b, q0, head_index), p.q_at.seq,
                                                 q1 - q0, p.d_qk, p.vectorized);
  dys.template fill<kRows, kGradientThreads>(static_cast<const T*>(p.dy) + p.y_at.at(b, q0, head_index), p.y_at.seq,
                                             q1 - q0, p.d_v, p.vectorized);
  cp_async_commit();
  int k0 = next_tile(max(p.mask.keys(q0).begin, 0) / kStreamedRows * kStreamedRows);
  if (k0 < k_end) fill(0, k0);
  cp_async_commit();
  cp_async_wait<1>();
  __syncthreads();
  LeftOperand<T, kD, kRowTiles> own_queries;
  LeftOperand<T, kD, kRowTiles> own_dys;
  own_queries.load(queries, warp_row);
  own_dys.load(dys, warp_row);
  for (int stage = 0; k0 < k_end; stage ^= 1) {
    const int next = next_tile(k0 + kStreamedRows);
    cp_async_wait();
    __syncthreads();
    if (next < k_end) {
      fill(stage ^ 1, next);
      cp_async_commit();
    }
    const Tile<T, kD> keys{stages + stage * kStageBytes};
    const Tile<T, kD> values{keys.base + kStreamedRows * kD * 2};
#pragma unroll 1
    for (int part = 0; part < kStreamedRows; part += kPart) {
      const int first = k0 + part;
      const WarpVisibility view = reach.of<kGeneral>(p.mask, first, first + kPart);
      if (view.range == Coverage::none) continue;
      const ScoreIndex place{b, head_index, query, first + column};
      DropoutMaskOf<kWork, false, kRowTiles, kBlocks> kept(p, stream, place);
      AccumulatorTile<kRowTiles, kBlocks> s;
      AccumulatorTile<kRowTiles, kBlocks> ds;
      float shift = 0;
      if constexpr (kGeneral) {
        shift = start_scores<false, kRowTiles, kBlocks>(p, bias, place.query, place.key, s);
      } else {
        clear<kRowTiles, kBlocks>(s);
      }
      clear<kRowTiles, kBlocks>(ds);
      multiply_loaded<T, kD, kRowTiles, kBlocks>(s, own_queries, keys, part);
      multiply_loaded<T, kD, kRowTiles, kBlocks>(ds, own_dys, values, part);
      kept.complete(p, stream, place);
      const auto hide_unseen = [&](AccumulatorTile<kRowTiles, kBlocks>& weights) {
        if (view.range == Coverage::partial) hide_by_queries<kRowTiles, kBlocks>(p, place, weights);
        if (view.holes) mask_pattern_holes<false, kRowTiles, kBlocks>(p.mask, place.query, place.key, 0.0F, weights);
      };
      find_gradients_by_queries<kWork, kRowTiles, kBlocks>(p, bias, place, kept, shift, rows, s, ds, hide_unseen);
      if constexpr (kGeneral) {
        if (p.dt5 != nullptr) buckets.template add<kRowTiles>(p, ds, q0 + warp_row + p.mask.offset, first);
      }
      add_product_of<T, kD, kRowTiles, kBlocks>(dq, ds, keys, part);
    }
    k0 = next;
  }
  if (kGeneral && p.dt5 != nullptr) buckets.release(p);
  cp_async_wait();
  __syncthreads();
  if (kGeneral && p.dt5 != nullptr) {
    const int64_t row = (static_cast<int64_t>(b) * p.n_heads + head_index) * tiles + tile;
    store_bucket_sums<kRowTiles>(p, bucket_memory, p.dt5 + row * p.t5_buckets);
  }
  scale_sums<kRowTiles, kD / 8>(dq, p.scale);
  const int row = q0 + warp_row;
  store_sums<T, kD, kRowTiles>(dq, queries, warp_row, static_cast<T*>(p.dq) + p.dq_at.at(b, row, head_index),
                               p.dq_at.seq, q1 - row, p.d_qk, p.vectorized);
}

template <class T, int kD>
void launch(const AttentionParams& p, cudaStream_t stream) {
  const int64_t blocks = static_cast<int64_t>((p.seq_q + kRowsOf<kD> - 1) / kRowsOf<kD>) * p.n_heads * p.batch;
  const auto kernel =
      kernel_for(score_features(p), [](auto work) { return query_gradient_mma_kernel<T, kD, decltype(work)::value>; });
  const int bucket_bytes = p.dt5 != nullptr ? kGradientWarps * kBucketFloats<kRowTilesOf<kD>> * 4 : 0;
  launch_heads(kernel, blocks, kGradientThreads, kGradientBytes<kD> + bucket_bytes, p, stream);
}

}  // namespace

template <class T>
void query_gradients_by_mma(const AttentionParams& p, cudaStream_t stream) {
  if (p.d_qk <= 64 && p.d_v <= 64) {
    launch<DeviceType<T>, 64>(p, stream);
  } else {
    launch<DeviceType<T>, 128>(p, stream);
  }
}

template void query_gradients_by_mma<bf16>(const AttentionParams&, cudaStream_t);

}  // namespace lamina::ops::cuda
