// Backward on tensor cores, bf16 and f16, heads up to 128 wide (padded to 64 or 128), in two kernels that both compute
// the weights again from the saved statistics: two more products per tile than one kernel would need, but every sum is
// made by one warp in one order, without a second buffer, and the bits never change.
//   dk, dv: a block has a tile of keys of one key head and walks over the queries of all heads that share it. Scores
//   are held transposed, keys by queries, so that the weights and the scores' gradients are left operands of dv and dk
//   as they lie in registers. dq: a block has a tile of queries and walks over keys as forward does.
// A warp has 32 rows of heads up to 64 wide (16 of wider ones, whose sums take the registers), so that a matrix read
// from shared memory meets two tiles. What is walked over comes in tiles of 64, two in shared memory, one on its way.
#include "lamina/ops/attention/attention_mma.cuh"

namespace lamina::ops::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;
constexpr int kWalk = 64;  // queries, or keys, of a step
constexpr int kScratchColumns = kWalk + 1;
constexpr int kDiagonals = 96;  // of 16 × 64 numbers, rounded up

using Coverage = DeviceMask::Coverage;
using Range = DeviceMask::Range;

template <int kD>
constexpr int kRowTilesOf = kD == 64 ? 2 : 1;
template <int kD>
constexpr int kRowsOf = kWarps * 16 * kRowTilesOf<kD>;

/// What happens between the products, for one call and head.
struct Head {
  HeadBias bias;
  bool adjusted;
  float unit;  // of scores that were not adjusted: scale · log2(e)
  uint64_t stream;

  __device__ Head(const AttentionParams& p, int head)
      : bias(p.bias_of(head)),
        adjusted(p.soft_cap > 0 || bias.any()),
        unit(p.scale * kLog2E),
        stream(p.dropout.key.stream + (p.dropout.active() ? *p.dropout.stream_offset : 0)) {}

  /// log2 of a weight before normalising, from q·k.
  __device__ float exponent(const AttentionParams& p, float dot, int query, int key, float& slope) const {
    slope = 1.0F;
    if (!adjusted) return dot * unit;
    float s = dot * p.scale;
    if (p.soft_cap > 0) {
      const float t = quick_tanh(s / p.soft_cap);
      s = p.soft_cap * t;
      slope = 1.0F - t * t;
    }
    if (bias.any()) s += bias.of(min(query, p.seq_q - 1), min(key, p.seq_k - 1));
    return s * kLog2E;
  }
};

__device__ void copy_number(uint32_t to, const float* from, bool inside) {
  const int bytes = inside ? 4 : 0;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;\n" ::"r"(to), "l"(from), "r"(bytes));
}

template <class T, int kD>
__global__ __launch_bounds__(kThreads, 2) void key_gradient_mma_kernel(const __grid_constant__ AttentionParams p) {
  constexpr int kRowTiles = kRowTilesOf<kD>;
  constexpr int kRows = kRowsOf<kD>;
  constexpr int kColumns = kD == 64 ? 32 : 64;  // queries at once
  constexpr int kBlocks = kColumns / 8;
  constexpr int kStageBytes = 2 * kWalk * kD * 2;
  extern __shared__ __align__(1024) unsigned char memory[];
  const uint32_t start = shared_address(memory);
  const Tile<T, kD> keys{start};
  const Tile<T, kD> values{start + kRows * kD * 2};
  const uint32_t stages = start + 2 * kRows * kD * 2;
  const auto* numbers = reinterpret_cast<const float*>(memory + 2 * kRows * kD * 2 + 2 * kStageBytes);  // [2][2][kWalk]

  const int tiles = (p.seq_k + kRows - 1) / kRows;
  const int k0 = static_cast<int>(blockIdx.x % tiles) * kRows;
  const int kv_head = static_cast<int>(blockIdx.x / tiles % p.n_kv_heads);
  const int b = static_cast<int>(blockIdx.x / tiles / p.n_kv_heads);
  const int k1 = min(k0 + kRows, p.seq_k);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp_row = static_cast<int>(threadIdx.x) / 32 * 16 * kRowTiles;
  const int key = k0 + warp_row + lane / 4;  // the lane's first row
  const int column = lane % 4 * 2;           // and column

  const int q_end = min(p.mask.queries(k1 - 1).end, p.seq_q);
  const int q_begin = max(p.mask.queries(k0).begin, 0) / kWalk * kWalk;
  const auto seen = [&](int q0) {
    return p.mask.ranges_suffice || p.mask.coverage(q0, min(q0 + kWalk, p.seq_q), k0, k1) != Coverage::none;
  };
  // Steps are numbered through the heads of the group: head n / steps, tile n % steps.
  const int steps = q_begin < q_end ? (q_end - q_begin + kWalk - 1) / kWalk : 0;
  const auto next_step = [&](int n) {
    while (n < steps * p.group && !seen(q_begin + n % steps * kWalk)) ++n;
    return n;
  };
  const auto fill = [&](int stage, int n) {
    const int head = kv_head * p.group + n / steps;
    const int q0 = q_begin + n % steps * kWalk;
    const Tile<T, kD> queries{stages + stage * kStageBytes};
    const Tile<T, kD> dys{queries.base + kWalk * kD * 2};
    queries.template fill<kWalk, kThreads>(static_cast<const T*>(p.q) + p.q_at.at(b, q0, head), p.q_at.seq,
                                           p.seq_q - q0, p.d_qk, p.packs);
    dys.template fill<kWalk, kThreads>(static_cast<const T*>(p.dy) + p.y_at.at(b, q0, head), p.y_at.seq, p.seq_q - q0,
                                       p.d_v, p.packs);
    const int t = static_cast<int>(threadIdx.x) % kWalk;
    const float* from = static_cast<int>(threadIdx.x) < kWalk ? p.base : p.delta;
    const bool inside = q0 + t < p.seq_q;
    copy_number(shared_address(numbers + stage * 2 * kWalk + threadIdx.x),
                from + p.statistics_row(b, head) + (inside ? q0 + t : 0), inside);
  };

  Sums<kRowTiles, kD / 8> dk;
  Sums<kRowTiles, kD / 8> dv;
  clear<kRowTiles, kD / 8>(dk);
  clear<kRowTiles, kD / 8>(dv);
  keys.template fill<kRows, kThreads>(static_cast<const T*>(p.k) + p.k_at.at(b, k0, kv_head), p.k_at.seq, k1 - k0,
                                      p.d_qk, p.packs);
  values.template fill<kRows, kThreads>(static_cast<const T*>(p.v) + p.v_at.at(b, k0, kv_head), p.v_at.seq, k1 - k0,
                                        p.d_v, p.packs);
  int n = next_step(0);
  if (n < steps * p.group) fill(0, n);
  commit_copies();
  for (int stage = 0; n < steps * p.group; stage ^= 1) {
    const int next = next_step(n + 1);
    wait_for_copies();
    __syncthreads();  // this stage is there for all, the other one no longer used by any
    if (next < steps * p.group) {
      fill(stage ^ 1, next);
      commit_copies();
    }
    const int head_index = kv_head * p.group + n / steps;
    const Head head(p, head_index);
    const Tile<T, kD> queries{stages + stage * kStageBytes};
    const Tile<T, kD> dys{queries.base + kWalk * kD * 2};
    const float* base = numbers + stage * 2 * kWalk;
    const float* delta = base + kWalk;
#pragma unroll 1
    for (int part = 0; part < kWalk; part += kColumns) {
      const int q0 = q_begin + n % steps * kWalk + part;
      const int warp_key = k0 + warp_row;
      const WarpReach reach(p.mask, q0, min(q0 + kColumns, p.seq_q));
      const Coverage coverage = reach.of(p.mask, warp_key, min(warp_key + 16 * kRowTiles, p.seq_k));
      if (warp_key >= p.seq_k || coverage == Coverage::none) continue;
      const bool partial = coverage == Coverage::partial || q0 + kColumns > p.seq_q;
      Sums<kRowTiles, kBlocks> s;
      Sums<kRowTiles, kBlocks> ds;
      multiply_tiles<T, kD, kRowTiles, kBlocks>(s, keys, warp_row, queries, part);
      multiply_tiles<T, kD, kRowTiles, kBlocks>(ds, values, warp_row, dys, part);
#pragma unroll
      for (int c = 0; c < kBlocks; ++c) {
        const int query = q0 + c * 8 + column;
        const float2 low = *reinterpret_cast<const float2*>(base + part + c * 8 + column);
        const float2 mean = *reinterpret_cast<const float2*>(delta + part + c * 8 + column);
        Range ranges[2];
        if (partial) {
          ranges[0] = p.mask.keys(min(query, p.seq_q - 1));
          ranges[1] = p.mask.keys(min(query + 1, p.seq_q - 1));
        }
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m) {
          float factors[4] = {1.0F, 1.0F, 1.0F, 1.0F};
          if (p.dropout.active()) {
            const uint64_t element = p.dropout_row(b, head_index, query) + key + m * 16;
            if (p.seq_k % 4 == 0) {
              dropout_factors_of_keys(p.dropout, head.stream, element, p.seq_k, factors);
            } else {
#pragma unroll
              for (int i = 0; i < 4; ++i) {
                factors[i] = p.dropout.of(element + i % 2 * static_cast<uint64_t>(p.seq_k) + i / 2 * 8);
              }
            }
          }
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int row = key + m * 16 + i / 2 * 8;
            float slope;
            const float exponent = head.exponent(p, s[m][c][i], query + i % 2, row, slope);
            float weight = power_of_two(exponent - (i % 2 == 0 ? low.x : low.y));
            if (partial && (query + i % 2 >= p.seq_q || !p.mask.allows(query + i % 2, ranges[i % 2], row))) {
              weight = 0;
            }
            const float grad = weight * (ds[m][c][i] * factors[i] - (i % 2 == 0 ? mean.x : mean.y));
            s[m][c][i] = weight * factors[i];
            ds[m][c][i] = grad * slope;
          }
        }
      }
      add_product_of<T, kD, kRowTiles, kBlocks>(dv, s, dys, part);
      add_product_of<T, kD, kRowTiles, kBlocks>(dk, ds, queries, part);
    }
    n = next;
  }
  wait_for_copies();  // of the keys, where there was no query
  __syncthreads();
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int c = 0; c < kD / 8; ++c) {
#pragma unroll
      for (int i = 0; i < 4; ++i) dk[m][c][i] *= p.scale;
    }
  }
  const int64_t row = (static_cast<int64_t>(b) * p.seq_k + k0 + warp_row) * p.n_kv_heads + kv_head;
  const int count = k1 - k0 - warp_row;
  store_sums<T, kD, kRowTiles>(dk, keys, warp_row, static_cast<T*>(p.dk) + row * p.d_qk,
                               static_cast<int64_t>(p.n_kv_heads) * p.d_qk, count, p.d_qk, p.packs);
  store_sums<T, kD, kRowTiles>(dv, values, warp_row, static_cast<T*>(p.dv) + row * p.d_v,
                               static_cast<int64_t>(p.n_kv_heads) * p.d_v, count, p.d_v, p.packs);
}

/// A warp's own sums by T5 bucket.
struct BucketSums {
  float* sums;       // [buckets]
  float* scratch;    // [16][kScratchColumns]
  float* diagonals;  // [kDiagonals]
  int* ids;          // [kDiagonals]

  /// Adds the gradients of 16·kRowTiles queries at positions from `position` on and 64 keys from k0 on.
  template <int kRowTiles>
  __device__ void add(const AttentionParams& p, const Sums<kRowTiles, kWalk / 8>& grads, int position, int k0) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const bool both = !p.mask.causal;
    const int low = k0 - (position + 16 * kRowTiles - 1);
    const int high = k0 + kWalk - 1 - position;
    const int bucket = t5_bucket_of(low, both, p.t5_buckets, p.t5_max_distance);
    if ((low > 0 || high <= 0) && bucket == t5_bucket_of(high, both, p.t5_buckets, p.t5_max_distance)) {
      float sum = 0;
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
        for (int c = 0; c < kWalk / 8; ++c) sum += grads[m][c][0] + grads[m][c][1] + grads[m][c][2] + grads[m][c][3];
      }
      sum = lamina::cuda::warp_sum(sum);
      if (lane == 0) sums[bucket] += sum;
      __syncwarp();
      return;
    }
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int c = 0; c < kWalk / 8; ++c) {
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
          if (at >= 0 && at < kWalk) sum += scratch[r * kScratchColumns + at];
        }
        diagonals[n] = sum;
        ids[n] = t5_bucket_of(k0 - position - m * 16 + n - 15, both, p.t5_buckets, p.t5_max_distance);
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

template <class T, int kD>
__global__ __launch_bounds__(kThreads, 2) void query_gradient_mma_kernel(const __grid_constant__ AttentionParams p) {
  constexpr int kRowTiles = kRowTilesOf<kD>;
  constexpr int kRows = kRowsOf<kD>;
  constexpr int kBlocks = kWalk / 8;
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
  const Head head(p, head_index);
  float base[kHalves];
  float delta[kHalves];
  Range seen[kHalves];
#pragma unroll
  for (int n = 0; n < kHalves; ++n) {
    const int row = query + n / 2 * 16 + n % 2 * 8;
    const bool inside = row < q1;
    const int64_t at = p.statistics_row(b, head_index) + row;
    base[n] = inside ? p.base[at] : INFINITY;
    delta[n] = inside ? p.delta[at] : 0.0F;
    seen[n] = inside ? p.mask.keys(row) : Range{0, 0};
  }
  if (p.dt5 != nullptr) {
    for (int n = lane; n < kMostMmaBuckets; n += 32) buckets.sums[n] = 0;
    __syncwarp();
  }
  Sums<kRowTiles, kD / 8> dq;
  clear<kRowTiles, kD / 8>(dq);

  const int k_end = min(p.mask.keys(q1 - 1).end, p.seq_k);
  const auto next_tile = [&](int k0) {
    while (!p.mask.ranges_suffice && k0 < k_end &&
           p.mask.coverage(q0, q1, k0, min(k0 + kWalk, p.seq_k)) == Coverage::none) {
      k0 += kWalk;
    }
    return k0;
  };
  const auto fill = [&](int stage, int k0) {
    const Tile<T, kD> keys{stages + stage * kStageBytes};
    const Tile<T, kD> values{keys.base + kWalk * kD * 2};
    keys.template fill<kWalk, kThreads>(k + k0 * p.k_at.seq, p.k_at.seq, p.seq_k - k0, p.d_qk, p.packs);
    values.template fill<kWalk, kThreads>(v + k0 * p.v_at.seq, p.v_at.seq, p.seq_k - k0, p.d_v, p.packs);
  };
  queries.template fill<kRows, kThreads>(static_cast<const T*>(p.q) + p.q_at.at(b, q0, head_index), p.q_at.seq, q1 - q0,
                                         p.d_qk, p.packs);
  dys.template fill<kRows, kThreads>(static_cast<const T*>(p.dy) + p.y_at.at(b, q0, head_index), p.y_at.seq, q1 - q0,
                                     p.d_v, p.packs);
  int k0 = next_tile(max(p.mask.keys(q0).begin, 0) / kWalk * kWalk);
  if (k0 < k_end) fill(0, k0);
  commit_copies();
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
    const Coverage coverage = reach.of(p.mask, k0, k0 + kWalk);
    if (coverage != Coverage::none) {
      Sums<kRowTiles, kBlocks> s;
      Sums<kRowTiles, kBlocks> ds;
      multiply_tiles<T, kD, kRowTiles, kBlocks>(s, queries, warp_row, keys, 0);
      multiply_tiles<T, kD, kRowTiles, kBlocks>(ds, dys, warp_row, values, 0);
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
        for (int c = 0; c < kBlocks; ++c) {
          const int key = k0 + c * 8 + column;
          float factors[4] = {1.0F, 1.0F, 1.0F, 1.0F};
          if (p.dropout.active()) {
            const uint64_t element = p.dropout_row(b, head_index, query + m * 16) + key;
            const auto below = 8 * static_cast<uint64_t>(p.seq_k);
            if (p.seq_k % 4 == 0) {
              dropout_factors(p.dropout, head.stream, element - column, element - column + below, factors);
            } else {
#pragma unroll
              for (int i = 0; i < 4; ++i) factors[i] = p.dropout.of(element + i / 2 * below + i % 2);
            }
          }
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int row = 2 * m + i / 2;
            float slope;
            const float exponent = head.exponent(p, s[m][c][i], query + m * 16 + i / 2 * 8, key + i % 2, slope);
            float weight = power_of_two(exponent - base[row]);
            if (coverage == Coverage::partial && !p.mask.allows(query + m * 16 + i / 2 * 8, seen[row], key + i % 2)) {
              weight = 0;
            }
            const float grad = weight * (ds[m][c][i] * factors[i] - delta[row]);
            s[m][c][i] = grad;
            ds[m][c][i] = grad * slope;
          }
        }
      }
      if (p.dt5 != nullptr) buckets.template add<kRowTiles>(p, s, q0 + warp_row + p.mask.offset, k0);
      add_product_of<T, kD, kRowTiles, kBlocks>(dq, ds, keys, 0);
    }
    k0 = next;
  }
  wait_for_copies();
  __syncthreads();
  if (p.dt5 != nullptr) {
    float* out = p.dt5 + ((static_cast<int64_t>(b) * p.n_heads + head_index) * tiles + tile) * p.t5_buckets;
    for (int n = threadIdx.x; n < p.t5_buckets; n += kThreads) {
      float sum = 0;
      for (int w = 0; w < kWarps; ++w) sum += bucket_memory[w * kBucketFloats + n];
      out[n] = sum;
    }
  }
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int c = 0; c < kD / 8; ++c) {
#pragma unroll
      for (int i = 0; i < 4; ++i) dq[m][c][i] *= p.scale;
    }
  }
  const int64_t row = (static_cast<int64_t>(b) * p.seq_q + q0 + warp_row) * p.n_heads + head_index;
  store_sums<T, kD, kRowTiles>(dq, queries, warp_row, static_cast<T*>(p.dq) + row * p.d_qk,
                               static_cast<int64_t>(p.n_heads) * p.d_qk, q1 - q0 - warp_row, p.d_qk, p.packs);
}

template <class Kernel>
void launch(Kernel kernel, int64_t blocks, int bytes, const AttentionParams& p, cudaStream_t stream) {
  LAMINA_CHECK(blocks < int64_t{1} << 31, "attention: ", p.batch, " rows of ", p.n_heads, " heads and ", p.seq_q,
               " queries are more blocks than one launch takes; use a smaller batch");
  if (blocks == 0) return;
  LAMINA_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), "attention");
  kernel<<<static_cast<unsigned>(blocks), kThreads, bytes, stream>>>(p);
  lamina::cuda::check_launch("attention");
}

template <class T, int kD>
void launch_both(const AttentionParams& p, cudaStream_t stream) {
  constexpr int kRows = kRowsOf<kD>;
  constexpr int kBytes = (2 * kRows + 4 * kWalk) * kD * 2;
  const auto blocks = [&](int seq, int heads) {
    return static_cast<int64_t>((seq + kRows - 1) / kRows) * heads * p.batch;
  };
  launch(key_gradient_mma_kernel<T, kD>, blocks(p.seq_k, p.n_kv_heads), kBytes + 4 * kWalk * 4, p, stream);
  launch(query_gradient_mma_kernel<T, kD>, blocks(p.seq_q, p.n_heads),
         kBytes + (p.dt5 != nullptr ? kWarps * kBucketFloats * 4 : 0), p, stream);
}

}  // namespace

template <class T>
void backward_by_mma(const AttentionParams& p, cudaStream_t stream) {
  if (p.d_qk <= 64 && p.d_v <= 64) {
    launch_both<DeviceType<T>, 64>(p, stream);
  } else {
    launch_both<DeviceType<T>, 128>(p, stream);
  }
}

template void backward_by_mma<bf16>(const AttentionParams&, cudaStream_t);
template void backward_by_mma<f16>(const AttentionParams&, cudaStream_t);

}  // namespace lamina::ops::cuda
