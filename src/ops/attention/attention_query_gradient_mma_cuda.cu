// dq and dt5 on tensor cores: a block has a tile of queries of one head and walks over the keys as forward does. The
// gradient by T5 bucket is summed in shared memory, a warp on its own: of tiles whose distances all fall into one
// bucket the whole, of others along the diagonals first.
#include "lamina/ops/attention/attention_backward_mma.cuh"

namespace lamina::ops::cuda {
namespace {

constexpr int kPart = 32;  // keys at once
constexpr int kScratchColumns = kPart + 1;
constexpr int kDiagonals = 64;  // of 16 × 32 numbers, rounded up

using Coverage = DeviceMask::Coverage;
using Range = DeviceMask::Range;

/// What a lane knows of its rows, two per 16.
template <int kRowTiles>
struct RowState {
  float base[2 * kRowTiles];
  float delta[2 * kRowTiles];
  Range seen[2 * kRowTiles];
};

template <int kRowTiles>
__device__ void hide(const RowState<kRowTiles>& rows, int key, Sums<kRowTiles, kPart / 8>& s) {
  for_sums<kRowTiles, kPart / 8>(s, [&](float& x, int row, int column) {
    const Range& seen = rows.seen[half_of(row)];
    x = key + column >= seen.begin && key + column < seen.end ? x : 0.0F;
  });
}

/// ds = weight · (dp − delta), from s the weights and ds the rest.
template <int kRowTiles>
__device__ void multiply_weights(const Sums<kRowTiles, kPart / 8>& s, Sums<kRowTiles, kPart / 8>& ds) {
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int n = 0; n < kPart / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) ds[m][n][i] *= s[m][n][i];
    }
  }
}

/// In: s = q·k, ds = dy·v. Out: ds the gradients of the scores.
template <int kRowTiles>
__device__ void find_plain(const AttentionParams& p, int key, bool partial, const RowState<kRowTiles>& rows,
                           Sums<kRowTiles, kPart / 8>& s, Sums<kRowTiles, kPart / 8>& ds) {
  const float unit = p.scale * kLog2E;
  for_sums<kRowTiles, kPart / 8>(
      s, [&](float& x, int row, int) { x = power_of_two(fmaf(x, unit, -rows.base[half_of(row)])); });
  if (partial) hide<kRowTiles>(rows, key, s);
  for_sums<kRowTiles, kPart / 8>(ds, [&](float& x, int row, int) { x -= rows.delta[half_of(row)]; });
  multiply_weights<kRowTiles>(s, ds);
}

/// The same with soft cap, bias, dropout and holes.
template <int kRowTiles>
__device__ void find_special(const AttentionParams& p, int b, int head, int query, int key, bool partial, bool holes,
                             const RowState<kRowTiles>& rows, Sums<kRowTiles, kPart / 8>& s,
                             Sums<kRowTiles, kPart / 8>& ds) {
  if (p.dropout.active()) {
    drop<kRowTiles, kPart / 8>(p, kept_bits<false, kRowTiles, kPart / 8>(p, b, head, query, key), ds);
  }
  for_sums<kRowTiles, kPart / 8>(ds, [&](float& x, int row, int) { x -= rows.delta[half_of(row)]; });
  const float unit = adjust_scores<false, kRowTiles, kPart / 8>(p, p.bias_of(head), query, key, s, ds);
  for_sums<kRowTiles, kPart / 8>(
      s, [&](float& x, int row, int) { x = power_of_two(fmaf(x, unit, -rows.base[half_of(row)])); });
  if (partial) hide<kRowTiles>(rows, key, s);
  if (holes) {
    for_sums<kRowTiles, kPart / 8>(s, [&](float& x, int row, int column) {
      if (x != 0 && !p.mask.pattern_allows(query + row, key + column)) x = 0;
    });
  }
  multiply_weights<kRowTiles>(s, ds);
}

/// A warp's own sums by T5 bucket.
struct BucketSums {
  float* sums;       // [buckets]
  float* scratch;    // [16][kScratchColumns]
  float* diagonals;  // [kDiagonals]
  int* ids;          // [kDiagonals]

  /// Adds the gradients of 16·kRowTiles queries at positions from `position` on and kPart keys from k0 on.
  template <int kRowTiles>
  __device__ void add(const AttentionParams& p, const Sums<kRowTiles, kPart / 8>& grads, int position, int k0) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int low = k0 - (position + 16 * kRowTiles - 1);
    const int high = k0 + kPart - 1 - position;
    const int bucket = p.bucket_of(low);
    if ((low > 0 || high <= 0) && bucket == p.bucket_of(high)) {
      float sum = 0;
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
        for (int c = 0; c < kPart / 8; ++c) sum += grads[m][c][0] + grads[m][c][1] + grads[m][c][2] + grads[m][c][3];
      }
      sum = lamina::cuda::warp_sum(sum);
      if (lane == 0) sums[bucket] += sum;
      __syncwarp();
      return;
    }
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int c = 0; c < kPart / 8; ++c) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          scratch[(lane / 4 + i / 2 * 8) * kScratchColumns + c * 8 + lane % 4 * 2 + i % 2] = grads[m][c][i];
        }
      }
      __syncwarp();
      for (int n = lane; n < kDiagonals; n += 32) {  // column − row + 15
        float sum = 0;
        for (int r = 0; r < 16; ++r) {
          const int at = n - 15 + r;
          if (at >= 0 && at < kPart) sum += scratch[r * kScratchColumns + at];
        }
        diagonals[n] = sum;
        ids[n] = p.bucket_of(k0 - position - m * 16 + n - 15);
      }
      __syncwarp();
      for (int own = lane; own < p.t5_buckets; own += 32) {
        float sum = 0;
        for (int n = 0; n < kDiagonals; ++n) sum += ids[n] == own ? diagonals[n] : 0.0F;
        sums[own] += sum;
      }
      __syncwarp();
    }
  }
};

constexpr int kBucketFloats = kMostMmaBuckets + 16 * kScratchColumns + 2 * kDiagonals;  // of a warp

template <class T, int kD, bool kSpecial>
__global__ __launch_bounds__(kGradientThreads,
                             2) void query_gradient_mma_kernel(const __grid_constant__ AttentionParams p) {
  constexpr int kRowTiles = kRowTilesOf<kD>;
  constexpr int kRows = kRowsOf<kD>;
  constexpr int kBlocks = kPart / 8;
  constexpr int kHalves = 2 * kRowTiles;
  constexpr int kStageBytes = 2 * kWalk * kD * 2;
  extern __shared__ __align__(1024) unsigned char memory[];
  const uint32_t start = shared_address(memory);
  const Tile<T, kD> queries{start};
  const Tile<T, kD> dys{start + kRows * kD * 2};
  const uint32_t stages = start + 2 * kRows * kD * 2;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  auto* bucket_memory = reinterpret_cast<float*>(memory + 2 * kRows * kD * 2 + 2 * kStageBytes);
  float* own_buckets = bucket_memory + warp * kBucketFloats;
  const BucketSums buckets{own_buckets, own_buckets + kMostMmaBuckets,
                           own_buckets + kMostMmaBuckets + 16 * kScratchColumns,
                           reinterpret_cast<int*>(own_buckets + kMostMmaBuckets + 16 * kScratchColumns + kDiagonals)};

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
  const int query = q0 + warp_row + lane / 4;  // the lane's first row
  const int column = lane % 4 * 2;             // and column
  const WarpReach reach(p.mask, q0 + warp_row, min(q0 + warp_row + 16 * kRowTiles, q1));
  RowState<kRowTiles> rows;
#pragma unroll
  for (int n = 0; n < kHalves; ++n) {
    const int row = query + n / 2 * 16 + n % 2 * 8;
    const bool inside = row < q1;
    const int64_t at = p.statistics_row(b, head_index) + row;
    rows.base[n] = inside ? p.base[at] : INFINITY;
    rows.delta[n] = inside ? p.delta[at] : 0.0F;
    rows.seen[n] = inside ? p.mask.keys(row) : Range{0, 0};
  }
  if (p.dt5 != nullptr) {
    for (int n = lane; n < kMostMmaBuckets; n += 32) buckets.sums[n] = 0;
    __syncwarp();
  }
  Sums<kRowTiles, kD / 8> dq;
  clear<kRowTiles, kD / 8>(dq);

  const int k_end = min(p.mask.keys(q1 - 1).end, p.seq_k);
  const auto next_tile = [&](int k0) {
    while (kSpecial && !p.mask.ranges_suffice && k0 < k_end &&
           p.mask.coverage(q0, q1, k0, min(k0 + kWalk, p.seq_k)) == Coverage::none) {
      k0 += kWalk;
    }
    return k0;
  };
  const auto fill = [&](int stage, int k0) {
    const Tile<T, kD> keys{stages + stage * kStageBytes};
    const Tile<T, kD> values{keys.base + kWalk * kD * 2};
    keys.template fill<kWalk, kGradientThreads>(k + k0 * p.k_at.seq, p.k_at.seq, p.seq_k - k0, p.d_qk, p.packs);
    values.template fill<kWalk, kGradientThreads>(v + k0 * p.v_at.seq, p.v_at.seq, p.seq_k - k0, p.d_v, p.packs);
  };
  queries.template fill<kRows, kGradientThreads>(static_cast<const T*>(p.q) + p.q_at.at(b, q0, head_index), p.q_at.seq,
                                                 q1 - q0, p.d_qk, p.packs);
  dys.template fill<kRows, kGradientThreads>(static_cast<const T*>(p.dy) + p.y_at.at(b, q0, head_index), p.y_at.seq,
                                             q1 - q0, p.d_v, p.packs);
  commit_copies();
  int k0 = next_tile(max(p.mask.keys(q0).begin, 0) / kWalk * kWalk);
  if (k0 < k_end) fill(0, k0);
  commit_copies();
  wait_for_copies<1>();
  __syncthreads();
  LeftOperand<T, kD, kRowTiles> own_queries;
  LeftOperand<T, kD, kRowTiles> own_dys;
  own_queries.load(queries, warp_row);
  own_dys.load(dys, warp_row);
  for (int stage = 0; k0 < k_end; stage ^= 1) {
    const int next = next_tile(k0 + kWalk);
    wait_for_copies();
    __syncthreads();
    if (next < k_end) {
      fill(stage ^ 1, next);
      commit_copies();
    }
    const Tile<T, kD> keys{stages + stage * kStageBytes};
    const Tile<T, kD> values{keys.base + kWalk * kD * 2};
#pragma unroll 1
    for (int part = 0; part < kWalk; part += kPart) {
      const int first = k0 + part;
      const WarpView view = reach.of<kSpecial>(p.mask, first, first + kPart);
      if (view.range == Coverage::none) continue;
      const bool partial = view.range == Coverage::partial;
      Sums<kRowTiles, kBlocks> s;
      Sums<kRowTiles, kBlocks> ds;
      multiply_loaded<T, kD, kRowTiles, kBlocks>(s, own_queries, keys, part);
      multiply_loaded<T, kD, kRowTiles, kBlocks>(ds, own_dys, values, part);
      if constexpr (kSpecial) {
        find_special<kRowTiles>(p, b, head_index, query, first + column, partial, view.holes, rows, s, ds);
        if (p.dt5 != nullptr) buckets.template add<kRowTiles>(p, ds, q0 + warp_row + p.mask.offset, first);
      } else {
        find_plain<kRowTiles>(p, first + column, partial, rows, s, ds);
      }
      add_product_of<T, kD, kRowTiles, kBlocks>(dq, ds, keys, part);
    }
    k0 = next;
  }
  wait_for_copies();
  __syncthreads();
  if (p.dt5 != nullptr) {
    float* out = p.dt5 + ((static_cast<int64_t>(b) * p.n_heads + head_index) * tiles + tile) * p.t5_buckets;
    for (int n = threadIdx.x; n < p.t5_buckets; n += kGradientThreads) {
      float sum = 0;
      for (int w = 0; w < kGradientWarps; ++w) sum += bucket_memory[w * kBucketFloats + n];
      out[n] = sum;
    }
  }
  scale_sums<kRowTiles, kD / 8>(dq, p.scale);
  const int row = q0 + warp_row;
  store_sums<T, kD, kRowTiles>(dq, queries, warp_row, static_cast<T*>(p.dq) + p.dq_at.at(b, row, head_index),
                               p.dq_at.seq, q1 - row, p.d_qk, p.packs);
}

template <class T, int kD>
void launch(const AttentionParams& p, cudaStream_t stream) {
  const int64_t blocks = static_cast<int64_t>((p.seq_q + kRowsOf<kD> - 1) / kRowsOf<kD>) * p.n_heads * p.batch;
  const auto kernel = is_special(p) ? query_gradient_mma_kernel<T, kD, true> : query_gradient_mma_kernel<T, kD, false>;
  const int bucket_bytes = p.dt5 != nullptr ? kGradientWarps * kBucketFloats * 4 : 0;
  launch_gradient(kernel, blocks, kGradientBytes<kD> + bucket_bytes, p, stream);
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
