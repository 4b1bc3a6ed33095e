// Backward of causal attention over up to 256 positions, heads up to 64 wide, on tensor cores: a block has a whole head
// of a row. q, k, v and dy come to shared memory once (128 KB); a warp has 16 keys and walks over the queries that see
// them, so that the weights are computed once and dk and dv stay in registers. The gradients of the scores are left
// behind in shared memory, rounded, the half that causality leaves of them (80 KB); after one barrier a warp multiplies
// those of 16 queries with the keys: dq. Each sum is made by one warp in one order. Where queries and keys were rotated
// before, their gradients are rotated back on the way out, by angles that are fetched during that last product. Read
// are q, k, v, y, dy, written dq, dk, dv, nothing else: 64 × 6 heads of 256 × 64 of bf16 are 100 MB, 24 µs at 4.2 TB/s.
// On an H200 it takes 73 µs, with 32 keys to a warp 77, with barriers every 64 queries, so that dq is made meanwhile,
// 88; cuDNN's three kernels take 87 and add dq up in memory.
#include "lamina/ops/attention/attention_short.cuh"

namespace lamina::ops::cuda {
namespace {

constexpr int kShortSeq = 256;
constexpr int kShortRows = 16;  // keys, then queries, of a warp
constexpr int kShortWarps = kShortSeq / kShortRows;
constexpr int kShortThreads = kShortWarps * 32;
constexpr int kShortColumns = 32;  // queries at once
constexpr int kShortBlocks = kShortColumns / 8;
constexpr int kOperandBytes = kShortSeq * kShortWidth * 2;

/// Gradients of scores, 16 keys by 64 queries a tile: those of keys 16·n and following against queries 64·block and
/// following, for the blocks from n / 4 on.
struct ScoreGradients {
  static constexpr int kTiles = 40;
  static constexpr int kTileBytes = kShortRows * 64 * 2;
  uint32_t base;

  template <class T>
  __device__ Tile<T, 64> tile(int n, int block) const {
    const int four = n / 4;  // they have 4 − four tiles each
    const int first = 16 * four - 2 * four * (four - 1) + n % 4 * (4 - four);
    return {base + static_cast<uint32_t>((first + block - four) * kTileBytes)};
  }
};
constexpr int kShortBytes = 4 * kOperandBytes + ScoreGradients::kTiles * ScoreGradients::kTileBytes + 2 * kShortSeq * 4;

/// What a block reads of one head of a row.
template <class T>
struct ShortHead {
  const T* q;
  const T* k;
  const T* v;
  const T* y;
  const T* dy;

  __device__ ShortHead(const AttentionParams& p, int index) {
    const int b = index / p.n_heads;
    const int head = index - b * p.n_heads;
    q = static_cast<const T*>(p.q) + p.q_at.at(b, 0, head);
    k = static_cast<const T*>(p.k) + p.k_at.at(b, 0, head);
    v = static_cast<const T*>(p.v) + p.v_at.at(b, 0, head);
    y = static_cast<const T*>(p.y) + p.y_at.at(b, 0, head);
    dy = static_cast<const T*>(p.dy) + p.y_at.at(b, 0, head);
  }
};

/// For each query delta = Σ_d dy · y and base = log2 Σ exp(score), to shared memory. y is asked for at once, and
/// multiplied when dy is there.
template <class T>
struct ShortStatistics {
  static constexpr int kChunks = kShortWidth / 8;  // threads of a row
  static constexpr int kStep = kShortThreads / kChunks;
  lamina::cuda::Pack<T> y[kShortSeq / kStep];

  __device__ static int row_of(int n) { return n * kStep + static_cast<int>(threadIdx.x) / kChunks; }
  __device__ static int chunk() { return static_cast<int>(threadIdx.x) % kChunks; }

  __device__ void load(const AttentionParams& p, const T* from) {
#pragma unroll
    for (int n = 0; n < kShortSeq / kStep; ++n) {
      const bool inside = row_of(n) < p.seq_q && chunk() * 8 < p.d_v;
      y[n] = inside ? lamina::cuda::load_pack(from + row_of(n) * p.y_at.seq + chunk() * 8) : lamina::cuda::Pack<T>{};
    }
  }
  __device__ void find(const AttentionParams& p, const Tile<T, kShortWidth>& dys, float* base, float* delta) const {
    const int64_t statistics = static_cast<int64_t>(blockIdx.x) * p.seq_q;
    const int thread = static_cast<int>(threadIdx.x);
    float least = 0;
    if (thread < p.seq_q) least = p.greatest[statistics + thread] * kLog2E;
    if (thread < p.seq_q && p.inverse != nullptr) least -= log2f(p.inverse[statistics + thread]);
    if (thread < kShortSeq) base[thread] = least;
#pragma unroll
    for (int n = 0; n < kShortSeq / kStep; ++n) {
      lamina::cuda::Pack<T> dy;
      auto& words = reinterpret_cast<uint4&>(dy);
      asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];\n"
                   : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
                   : "r"(dys.at(row_of(n), chunk())));
      float sum = 0;
#pragma unroll
      for (int i = 0; i < 8; ++i) sum = fmaf(to_float(y[n].values[i]), to_float(dy.values[i]), sum);
#pragma unroll
      for (int step = kChunks / 2; step > 0; step /= 2) sum += __shfl_xor_sync(lamina::cuda::kAllLanes, sum, step);
      if (chunk() == 0) delta[row_of(n)] = sum;
    }
  }
};

/// In: s = k·q, ds = v·dy of a warp's keys and 32 queries. Out: the weights, and the gradients of the scores. `key` and
/// `query` are those of the lane's first number; with `cut`, some keys stand behind their query, or queries behind the
/// last.
__device__ inline void find_gradients(float unit, int seq, bool cut, int key, int query, const float* base,
                                      const float* delta, Sums<1, kShortBlocks>& s, Sums<1, kShortBlocks>& ds) {
#pragma unroll
  for (int n = 0; n < kShortBlocks; ++n) {
    const float2 low = *reinterpret_cast<const float2*>(base + query + n * 8);
    const float2 mean = *reinterpret_cast<const float2*>(delta + query + n * 8);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float weight = power_of_two(fmaf(s[0][n][i], unit, i % 2 == 0 ? -low.x : -low.y));
      const int column = query + n * 8 + i % 2;
      if (cut && (key + i / 2 * 8 > column || column >= seq)) weight = 0;
      s[0][n][i] = weight;
      ds[0][n][i] = weight * (ds[0][n][i] - (i % 2 == 0 ? mean.x : mean.y));
    }
  }
}

/// A warp's sums, rounded, to rows 0 and following of a tile, columns 8·chunk and following.
template <class T>
__device__ inline void put_sums(const Sums<1, kShortBlocks>& sums, const Tile<T, 64>& tile, int chunk) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int n = 0; n < kShortBlocks; ++n) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t pair = pack_pair<T>(sums[0][n][2 * half], sums[0][n][2 * half + 1]);
      const uint32_t to = tile.at(half * 8 + lane / 4, chunk + n) + lane % 4 * 4;
      asm volatile("st.shared.b32 [%0], %1;\n" ::"r"(to), "r"(pair) : "memory");
    }
  }
}

/// dq of the queries from `row` on: the gradients of their scores times the keys they see.
template <class T>
__device__ inline void multiply_keys(Sums<1, kShortWidth / 8>& dq, const ScoreGradients& gradients,
                                     const Tile<T, kShortWidth>& keys, int row) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  clear<1, kShortWidth / 8>(dq);
#pragma unroll 2
  for (int key = 0; key <= row; key += kShortRows) {
    const Tile<T, 64> tile = gradients.tile<T>(key / kShortRows, row / 64);
    uint32_t left[4];
    load_matrices_transposed(left, tile.at(lane / 16 * 8 + lane % 8, row % 64 / 8 + lane / 8 % 2));
#pragma unroll
    for (int n = 0; n < kShortWidth / 16; ++n) {
      uint32_t right[4];
      keys.right_columns(right, key, n);
      multiply_add<T>(dq[0][2 * n], left, right[0], right[1]);
      multiply_add<T>(dq[0][2 * n + 1], left, right[2], right[3]);
    }
  }
}

template <int kBlocks>
__device__ inline void scale_all(Sums<1, kBlocks>& sums, float factor) {
  for_sums<1, kBlocks>(sums, [&](float& x, int, int) { x *= factor; });
}

/// The angles of a warp's 16 positions, in rows of two tiles that are the warp's alone.
struct WarpAngles {
  static constexpr int kPairs = ShortRotation::kPairs;
  // 4-byte numbers in the places of pairs of elements
  Tile<__nv_bfloat16, kShortWidth> cos;
  Tile<__nv_bfloat16, kShortWidth> sin;
  int row;

  /// There after wait_for_copies() and __syncwarp().
  __device__ void fetch(const ShortRotation& from, int seq) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int n = 0; n < kShortRows * kPairs / 4 / 32; ++n) {
      const int line = n * 4 + lane / 8;
      const int chunk = lane % 8;
      const int64_t at = static_cast<int64_t>(row + line) * kPairs + chunk * 4;
      const bool inside = row + line < seq;
      copy_async(cos.at(row + line, chunk), inside ? from.cos + at : from.cos, inside);
      copy_async(sin.at(row + line, chunk), inside ? from.sin + at : from.sin, inside);
    }
    commit_copies();
  }
  __device__ static float2 read(const Tile<__nv_bfloat16, kShortWidth>& table, int line, int pair) {
    float2 two;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];\n"
                 : "=f"(two.x), "=f"(two.y)
                 : "r"(table.at(line, pair / 4) + pair % 4 * 4)
                 : "memory");
    return two;
  }
  /// Rotates gradients of the warp's rows back: by the negative angles.
  __device__ void turn_back(Sums<1, kShortWidth / 8>& a, Sums<1, kShortWidth / 8>& b) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int n = 0; n < kPairs / 8; ++n) {
        const float2 c = read(cos, row + half * 8 + lane / 4, n * 8 + lane % 4 * 2);
        const float2 s = read(sin, row + half * 8 + lane / 4, n * 8 + lane % 4 * 2);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          turn_pair(a, n, 2 * half + i, i == 0 ? c.x : c.y, i == 0 ? s.x : s.y);
          turn_pair(b, n, 2 * half + i, i == 0 ? c.x : c.y, i == 0 ? s.x : s.y);
        }
      }
    }
  }
  __device__ static void turn_pair(Sums<1, kShortWidth / 8>& sums, int n, int i, float c, float s) {
    const float first = sums[0][n][i];
    const float second = sums[0][n + kPairs / 8][i];
    sums[0][n][i] = fmaf(first, c, second * s);
    sums[0][n + kPairs / 8][i] = fmaf(second, c, -first * s);
  }
};

/// Which 16 keys, then queries, are a warp's: those of warps n, n + 4, n + 8 and n + 12, which share a quarter of the
/// multiprocessor, see as many queries together everywhere.
__device__ inline int part_of(int warp) { return warp / 4 % 2 == 0 ? warp : warp / 4 * 4 + 3 - warp % 4; }

template <class T, bool kTurned>
__global__ __launch_bounds__(kShortThreads, 1) void short_backward_kernel(const __grid_constant__ AttentionParams p,
                                                                          const ShortRotation rotation) {
  extern __shared__ __align__(1024) unsigned char memory[];
  lamina::cuda::wait_for_previous();
  const uint32_t start = shared_address(memory);
  const Tile<T, kShortWidth> queries{start};
  const Tile<T, kShortWidth> keys{start + kOperandBytes};
  const Tile<T, kShortWidth> values{start + 2 * kOperandBytes};
  const Tile<T, kShortWidth> dys{start + 3 * kOperandBytes};
  const ScoreGradients gradients{start + 4 * kOperandBytes};
  auto* base = reinterpret_cast<float*>(memory + kShortBytes) - 2 * kShortSeq;
  float* delta = base + kShortSeq;
  const int seq = p.seq_q;
  const ShortHead<T> head(p, static_cast<int>(blockIdx.x));
  dys.template fill<kShortSeq, kShortThreads>(head.dy, p.y_at.seq, seq, p.d_v, true);
  commit_copies();
  queries.template fill<kShortSeq, kShortThreads>(head.q, p.q_at.seq, seq, p.d_qk, true);
  keys.template fill<kShortSeq, kShortThreads>(head.k, p.k_at.seq, seq, p.d_qk, true);
  values.template fill<kShortSeq, kShortThreads>(head.v, p.v_at.seq, seq, p.d_v, true);
  commit_copies();
  ShortStatistics<T> statistics;
  statistics.load(p, head.y);
  wait_for_copies<1>();
  __syncthreads();
  statistics.find(p, dys, base, delta);
  wait_for_copies();
  __syncthreads();

  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int part = part_of(warp);
  const int row = part * kShortRows;
  const int b = static_cast<int>(blockIdx.x) / p.n_heads;
  const int h = static_cast<int>(blockIdx.x) - b * p.n_heads;
  Sums<1, kShortWidth / 8> dk;
  clear<1, kShortWidth / 8>(dk);
  if (row < seq) {
    Sums<1, kShortWidth / 8> dv;
    clear<1, kShortWidth / 8>(dv);
#pragma unroll 1
    for (int q0 = row / kShortColumns * kShortColumns; q0 < seq; q0 += kShortColumns) {
      Sums<1, kShortBlocks> s;
      Sums<1, kShortBlocks> ds;
      clear<1, kShortBlocks>(s);
      clear<1, kShortBlocks>(ds);
      multiply_tiles<T, kShortWidth, 1, kShortBlocks>(s, keys, row, queries, q0);
      multiply_tiles<T, kShortWidth, 1, kShortBlocks>(ds, values, row, dys, q0);
      find_gradients(p.scale * kLog2E, seq, q0 <= row || q0 + kShortColumns > seq, row + lane / 4, q0 + lane % 4 * 2,
                     base, delta, s, ds);
      put_sums<T>(ds, gradients.tile<T>(part, q0 / 64), q0 % 64 / 8);
      add_product_of<T, kShortWidth, 1, kShortBlocks>(dv, s, dys, q0);
      add_product_of<T, kShortWidth, 1, kShortBlocks>(dk, ds, queries, q0);
    }
    // Its own rows of the values are the warp's alone; all will read the keys again.
    store_sums<T, kShortWidth, 1>(dv, values, row, static_cast<T*>(p.dv) + p.dv_at.at(b, row, h), p.dv_at.seq,
                                  seq - row, p.d_v, true);
  }
  __syncthreads();
  if (row >= seq) return;
  const WarpAngles angles{{dys.base}, {values.base}, row};
  if constexpr (kTurned) angles.fetch(rotation, seq);
  Sums<1, kShortWidth / 8> dq;
  multiply_keys<T>(dq, gradients, keys, row);
  if constexpr (kTurned) {
    wait_for_copies();
    __syncwarp();
    angles.turn_back(dq, dk);
  }
  scale_all<kShortWidth / 8>(dk, p.scale);
  store_sums<T, kShortWidth, 1>(dk, queries, row, static_cast<T*>(p.dk) + p.dk_at.at(b, row, h), p.dk_at.seq, seq - row,
                                p.d_qk, true);
  scale_all<kShortWidth / 8>(dq, p.scale);
  store_sums<T, kShortWidth, 1>(dq, queries, row, static_cast<T*>(p.dq) + p.dq_at.at(b, row, h), p.dq_at.seq, seq - row,
                                p.d_qk, true);
}

}  // namespace

bool takes_short_backward(const AttentionParams& p, const Device& device) {
  const bool plain = score_work(p) == ScoreWork::plain && p.mask.causal &&
                     p.mask.kind == AttentionPattern::Kind::full && p.mask.documents == nullptr && p.sinks == nullptr;
  const bool fits = p.seq_q == p.seq_k && p.seq_q <= kShortSeq && p.group == 1 && p.d_qk <= kShortWidth &&
                    p.d_v <= kShortWidth && p.packs;
  int most = 0;
  LAMINA_CUDA(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device.index()), "attention");
  // Shorter ones would leave most of a block's warps without keys.
  return plain && fits && p.seq_q > kShortSeq / 2 && takes_mma(p) &&
         static_cast<int64_t>(p.batch) * p.n_heads < int64_t{1} << 31 && most >= kShortBytes;
}

template <class T>
void short_backward(const AttentionParams& p, const ShortRotation& rotation, const Device& device) {
  using D = DeviceType<T>;
  const auto kernel = rotation.cos != nullptr ? short_backward_kernel<D, true> : short_backward_kernel<D, false>;
  LAMINA_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShortBytes), "attention");
  lamina::cuda::launch_dependent(kernel, dim3(static_cast<unsigned>(p.batch * p.n_heads)), dim3(kShortThreads),
                                 kShortBytes, device, p, rotation);
  lamina::cuda::check_launch("attention");
}

template void short_backward<bf16>(const AttentionParams&, const ShortRotation&, const Device&);

}  // namespace lamina::ops::cuda
