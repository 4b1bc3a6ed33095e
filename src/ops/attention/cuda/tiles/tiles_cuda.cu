// Fallback attention with tiles of 64 queries × 64 keys and plain f32 FMAs, for every width, option and dtype: used for
// f32 and for cases without a tensor-core kernel. A block of 256 threads holds a tile of scores in registers, 4 × 4 per
// thread, computed through shared memory 32 columns at a time, so any d_qk works. A block holds kSlice columns of the
// outputs (y, dq, or dk and dv); wider heads use several blocks, each of which recomputes the scores. Forward keeps the
// running maximum and sum of a row in the registers of the 16 threads that share it. Backward is two kernels: one block
// per key tile for dk and dv, one per query tile for dq and dt5. Every sum is accumulated by one block in a fixed
// order, without atomics, so results are deterministic. dk and dv are summed from the last query to the first: with a
// causal mask the weights of a key are largest for its first queries, and adding small terms to a large sum loses
// precision.
#include "lamina/ops/attention/cuda/mma/mma.cuh"

namespace lamina::ops::cuda {
namespace {

constexpr int kTile = kTileQueries;
constexpr int kDepth = 32;
constexpr int kSlice = 64;
constexpr int kThreads = 256;
constexpr int kSide = 4;  // rows, and columns, per thread

using Coverage = DeviceMask::Coverage;
using Range = DeviceMask::Range;

/// Rows and columns of a tile that a thread holds: rows 4·(t / 16) + i, columns t % 16 + 16·j.
struct Place {
  int row;
  int column;
  __device__ Place() : row(static_cast<int>(threadIdx.x) / 16 * kSide), column(static_cast<int>(threadIdx.x) % 16) {}
};

union Staging {
  struct {
    float a[kTile][kDepth + 1];
    float b[kTile][kDepth + 1];
  } depth;
  float4 rows[kTile][kSlice / 4];
};

/// Stages columns from c0 on of `count` rows, `stride` apart and `width` wide; zeros beyond both.
template <class T>
__device__ void stage_depth(const T* from, int64_t stride, int count, int width, int c0, float (*to)[kDepth + 1]) {
  for (int n = threadIdx.x; n < kTile * kDepth; n += kThreads) {
    const int r = n / kDepth;
    const int c = n % kDepth;
    to[r][c] = r < count && c0 + c < width ? to_float(from[r * stride + c0 + c]) : 0.0F;
  }
}

template <class T>
__device__ void stage_rows(const T* from, int64_t stride, int count, int width, int c0, float4 (*to)[kSlice / 4]) {
  auto* out = reinterpret_cast<float*>(to);
  for (int n = threadIdx.x; n < kTile * kSlice; n += kThreads) {
    const int r = n / kSlice;
    const int c = n % kSlice;
    out[n] = r < count && c0 + c < width ? to_float(from[r * stride + c0 + c]) : 0.0F;
  }
}

/// Rows of a head from some position on.
template <class T>
struct Rows {
  const T* from;
  int64_t stride;
  int count;
};

template <class T>
__device__ Rows<T> rows_of(const void* tensor, const HeadStrides& at, int b, int first, int head, int seq) {
  return {static_cast<const T*>(tensor) + at.at(b, first, head), at.seq, min(kTile, seq - first)};
}

/// out = a bᵀ
template <class T>
__device__ void multiply(const Rows<T>& a, const Rows<T>& b, int width, Staging& staging, float out[kSide][kSide]) {
  const Place place;
  for (int i = 0; i < kSide; ++i) {
    for (int j = 0; j < kSide; ++j) out[i][j] = 0;
  }
  for (int c0 = 0; c0 < width; c0 += kDepth) {
    __syncthreads();
    stage_depth(a.from, a.stride, a.count, width, c0, staging.depth.a);
    stage_depth(b.from, b.stride, b.count, width, c0, staging.depth.b);
    __syncthreads();
#pragma unroll 8
    for (int c = 0; c < kDepth; ++c) {
      float x[kSide];
      float y[kSide];
#pragma unroll
      for (int i = 0; i < kSide; ++i) x[i] = staging.depth.a[place.row + i][c];
#pragma unroll
      for (int j = 0; j < kSide; ++j) y[j] = staging.depth.b[place.column + 16 * j][c];
#pragma unroll
      for (int i = 0; i < kSide; ++i) {
#pragma unroll
        for (int j = 0; j < kSide; ++j) out[i][j] = fmaf(x[i], y[j], out[i][j]);
      }
    }
  }
}

/// out += a b over the 64 rows of b, for columns 4·(t % 16) and following of the slice. If transposed, `a` is read by
/// columns and the rows of b from last to first. Stages b.
template <bool kTransposed, class T>
__device__ void add_product(const float (*a)[kTile + 1], const Rows<T>& b, int width, int c0, Staging& staging,
                            float out[kSide][kSide]) {
  const Place place;
  __syncthreads();  // `a` is complete, `staging` free
  stage_rows(b.from, b.stride, b.count, width, c0, staging.rows);
  __syncthreads();
#pragma unroll 8
  for (int step = 0; step < kTile; ++step) {
    const int n = kTransposed ? kTile - 1 - step : step;
    const float4 y = staging.rows[n][place.column];
#pragma unroll
    for (int i = 0; i < kSide; ++i) {
      const float x = kTransposed ? a[n][place.row + i] : a[place.row + i][n];
      out[i][0] = fmaf(x, y.x, out[i][0]);
      out[i][1] = fmaf(x, y.y, out[i][1]);
      out[i][2] = fmaf(x, y.z, out[i][2]);
      out[i][3] = fmaf(x, y.w, out[i][3]);
    }
  }
}

/// Writes a slice computed by add_product.
template <class T>
__device__ void store_slice(T* to, int64_t stride, int count, int width, int c0, const float values[kSide][kSide]) {
  const Place place;
  for (int i = 0; i < kSide; ++i) {
    for (int j = 0; j < kSide; ++j) {
      const int c = c0 + place.column * kSide + j;
      if (place.row + i < count && c < width) to[(place.row + i) * stride + c] = from_float<T>(values[i][j]);
    }
  }
}

/// e^x for x <= 0 to within 1 ulp; 0 below −87. Unlike the hardware's ex2.approx its error has no bias, which a sum
/// over many weights would show.
__device__ float exp_of(float x) {
  const float n = rintf(x * kLog2E);
  float r = fmaf(n, -0.693359375F, x);  // ln 2 split in two parts
  r = fmaf(n, 2.12194440e-4F, r);
  float e = fmaf(1.9875691500e-4F, r, 1.3981999507e-3F);
  e = fmaf(e, r, 8.3334519073e-3F);
  e = fmaf(e, r, 4.1665795894e-2F);
  e = fmaf(e, r, 1.6666665459e-1F);
  e = fmaf(e, r, 5.0000001201e-1F);
  e = fmaf(e * r, r, r) + 1.0F;
  return x < -87.0F ? 0.0F : e * __int_as_float((static_cast<int>(n) + 127) << 23);
}

// Sum and maximum over the 16 threads that share a row.
__device__ float row_sum(float value) {
  for (int step = 8; step > 0; step /= 2) value += __shfl_xor_sync(lamina::cuda::kAllLanes, value, step);
  return value;
}
__device__ float warp_row_max(float value) {
  for (int step = 8; step > 0; step /= 2) value = fmaxf(value, __shfl_xor_sync(lamina::cuda::kAllLanes, value, step));
  return value;
}

/// The tile, head and batch row of a block.
struct Task {
  int tile;
  int head;
  int b;
  __device__ Task(int tiles, int heads)
      : tile(static_cast<int>(blockIdx.x % tiles)),
        head(static_cast<int>(blockIdx.x / tiles % heads)),
        b(static_cast<int>(blockIdx.x / tiles / heads)) {}
};

__device__ int tiles_of(int count) { return (count + kTile - 1) / kTile; }

/// Dropout bits of a thread's weights, bit 4·i + j for row i and column j; `query` and `key` belong to the first. In
/// each of the tile's four groups of 16 keys, four threads share the keys of a patch: each thread draws for one group,
/// two patches one below the other.
__device__ __noinline__ uint32_t draw_kept(const AttentionParams& p, int b, int head, int query, int key) {
  const uint64_t stream = p.dropout.stream();
  const int place = key / 8 % 2 * 2 + key % 2;
  const uint32_t row = p.dropout_row(b, head, query);
  const uint32_t column = dropout_patch(static_cast<uint32_t>(key + 16 * place));
  const uint32_t own =
      __byte_perm(p.dropout.kept(stream, row, column), p.dropout.kept(stream, row + 1, column), 0x5410);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  uint32_t bits = 0;
#pragma unroll
  for (int j = 0; j < kSide; ++j) {
    const uint32_t got = __shfl_sync(lamina::cuda::kAllLanes, own, (lane & ~9) | j / 2 * 8 | j % 2);
#pragma unroll
    for (int i = 0; i < kSide; ++i) {
      bits |= (got >> (i / 2 * 16 + weight_in_patch(query + i % 2, key)) & 1) << (4 * i + j);
    }
  }
  return bits;
}

/// Dropout factors of a thread's weights.
struct Kept {
  uint32_t bits;
  float factor;
  __device__ Kept(const AttentionParams& p, int b, int head, int query, int key)
      : bits(p.dropout.active() ? draw_kept(p, b, head, query, key) : ~0U), factor(p.dropout.factor) {}
  __device__ float of(int i, int j) const { return (bits >> (4 * i + j) & 1) != 0 ? factor : 0.0F; }
};

template <class T>
__global__ __launch_bounds__(kThreads) void forward_kernel(const __grid_constant__ AttentionParams p) {
  __shared__ Staging staging;
  __shared__ float weights[kTile][kTile + 1];
  const int tiles = tiles_of(p.seq_q);
  const Task task(tiles, p.n_heads);
  const int q0 = (tiles - 1 - task.tile) * kTile;  // longest first: the last causal tiles see the most keys
  const int q1 = min(q0 + kTile, p.seq_q);
  const int slice = static_cast<int>(blockIdx.y) * kSlice;
  const int kv_head = task.head / p.group;
  const Place place;
  const Rows<T> q = rows_of<T>(p.q, p.q_at, task.b, q0, task.head, p.seq_q);
  const HeadBias bias = p.bias_of(task.head);
  const float sink = p.sinks == nullptr ? kLowest : p.sinks[task.head];
  float most[kSide];
  float sum[kSide];
  float y[kSide][kSide] = {};
  Range seen[kSide];
#pragma unroll
  for (int i = 0; i < kSide; ++i) {
    most[i] = fmaxf(sink, kLowest);
    sum[i] = sink > kLowest ? 1.0F : 0.0F;
    seen[i] = q0 + place.row + i < q1 ? p.mask.keys(q0 + place.row + i) : Range{0, 0};
  }
  const int k_begin = max(p.mask.keys(q0).begin, 0) / kTile * kTile;
  const int k_end = min(p.mask.keys(q1 - 1).end, p.seq_k);
  for (int k0 = k_begin; k0 < k_end; k0 += kTile) {
    const Coverage coverage = p.mask.coverage(q0, q1, k0, min(k0 + kTile, p.seq_k));
    if (coverage == Coverage::none) continue;
    float s[kSide][kSide];
    multiply(q, rows_of<T>(p.k, p.k_at, task.b, k0, kv_head, p.seq_k), p.d_qk, staging, s);
    __syncthreads();  // the weights of the previous tile have been read
    const Kept kept(p, task.b, task.head, q0 + place.row, k0 + place.column);
#pragma unroll
    for (int i = 0; i < kSide; ++i) {
      const int query = q0 + place.row + i;
      float row_max = most[i];
#pragma unroll
      for (int j = 0; j < kSide; ++j) {
        const int key = k0 + place.column + 16 * j;
        const bool see =
            query < q1 && key < p.seq_k && (coverage == Coverage::full || p.mask.allows(query, seen[i], key));
        s[i][j] = see ? score_of(p, s[i][j], bias, query, key) : -INFINITY;
        row_max = fmaxf(row_max, s[i][j]);
      }
      row_max = warp_row_max(row_max);
      const float shrink = exp_of(most[i] - row_max);
      float part = 0;
#pragma unroll
      for (int j = 0; j < kSide; ++j) {
        const float weight = exp_of(s[i][j] - row_max);
        part += weight;
        weights[place.row + i][place.column + 16 * j] = weight * kept.of(i, j);
        y[i][j] *= shrink;
      }
      sum[i] = sum[i] * shrink + row_sum(part);
      most[i] = row_max;
    }
    add_product<false>(weights, rows_of<T>(p.v, p.v_at, task.b, k0, kv_head, p.seq_k), p.d_v, slice, staging, y);
  }
#pragma unroll
  for (int i = 0; i < kSide; ++i) {
    const float row_inv_sum = sum[i] != 0 ? 1.0F / sum[i] : 0.0F;
    for (int j = 0; j < kSide; ++j) y[i][j] *= row_inv_sum;
    if (slice == 0 && place.column == 0 && q0 + place.row + i < q1) {
      const int64_t at = p.statistics_row(task.b, task.head) + q0 + place.row + i;
      p.row_max[at] = most[i];
      p.row_inv_sum[at] = row_inv_sum;
    }
  }
  store_slice(static_cast<T*>(p.y) + p.y_at.at(task.b, q0, task.head), p.y_at.seq, q1 - q0, p.d_v, slice, y);
}

/// Weights and score gradients of one tile. In: `s` = q·k, `dp` = dy·v. Out: s holds the weights after dropout, dp the
/// gradient of scale · q·k, and `direct` (if not null) that of the score after the soft cap.
__device__ void find_gradients(const AttentionParams& p, int b, int head, int q0, int q1, int k0, bool partial,
                               float s[kSide][kSide], float dp[kSide][kSide], float (*direct)[kSide]) {
  const Place place;
  const HeadBias bias = p.bias_of(head);
  const Kept kept(p, b, head, q0 + place.row, k0 + place.column);
#pragma unroll
  for (int i = 0; i < kSide; ++i) {
    const int query = q0 + place.row + i;
    const bool inside = query < q1;
    const int64_t at = p.statistics_row(b, head) + query;
    const float row_max = inside ? p.row_max[at] : 0.0F;
    const float row_inv_sum = inside ? p.row_inv_sum[at] : 0.0F;
    const float delta = inside ? p.delta[at] : 0.0F;
    const Range seen = inside ? p.mask.keys(query) : Range{0, 0};
#pragma unroll
    for (int j = 0; j < kSide; ++j) {
      const int key = k0 + place.column + 16 * j;
      const bool see = inside && key < p.seq_k && (!partial || p.mask.allows(query, seen, key));
      float slope = 1.0F;
      const float weight = see ? exp_of(score_of(p, s[i][j], bias, query, key, &slope) - row_max) * row_inv_sum : 0.0F;
      const float factor = kept.of(i, j);
      const float grad = see ? weight * (dp[i][j] * factor - delta) : 0.0F;
      s[i][j] = weight * factor;
      dp[i][j] = grad * slope;
      if (direct != nullptr) direct[i][j] = grad;
    }
  }
}

__device__ void put(const float values[kSide][kSide], float (*to)[kTile + 1]) {
  const Place place;
#pragma unroll
  for (int i = 0; i < kSide; ++i) {
#pragma unroll
    for (int j = 0; j < kSide; ++j) to[place.row + i][place.column + 16 * j] = values[i][j];
  }
}

template <class T>
__global__ __launch_bounds__(kThreads) void key_gradient_kernel(const __grid_constant__ AttentionParams p) {
  __shared__ Staging staging;
  __shared__ float square[kTile][kTile + 1];
  const Task task(tiles_of(p.seq_k), p.n_kv_heads);
  const int k0 = task.tile * kTile;
  const int k1 = min(k0 + kTile, p.seq_k);
  const int slice = static_cast<int>(blockIdx.y) * kSlice;
  const Rows<T> k = rows_of<T>(p.k, p.k_at, task.b, k0, task.head, p.seq_k);
  const Rows<T> v = rows_of<T>(p.v, p.v_at, task.b, k0, task.head, p.seq_k);
  float dk[kSide][kSide] = {};
  float dv[kSide][kSide] = {};
  const int q_begin = max(p.mask.queries(k0).begin, 0) / kTile * kTile;
  const int q_end = min(p.mask.queries(k1 - 1).end, p.seq_q);
  for (int h = 0; h < p.group; ++h) {
    const int head = task.head * p.group + h;
    for (int q0 = tiles_of(q_end) * kTile - kTile; q0 >= q_begin; q0 -= kTile) {
      const int q1 = min(q0 + kTile, p.seq_q);
      const Coverage coverage = p.mask.coverage(q0, q1, k0, k1);
      if (coverage == Coverage::none) continue;
      const Rows<T> q = rows_of<T>(p.q, p.q_at, task.b, q0, head, p.seq_q);
      const Rows<T> dy = rows_of<T>(p.dy, p.y_at, task.b, q0, head, p.seq_q);
      float s[kSide][kSide];
      float ds[kSide][kSide];
      multiply(q, k, p.d_qk, staging, s);
      multiply(dy, v, p.d_v, staging, ds);
      find_gradients(p, task.b, head, q0, q1, k0, coverage == Coverage::partial, s, ds, nullptr);
      __syncthreads();  // the previous contents of `square` have been read
      put(s, square);
      add_product<true>(square, dy, p.d_v, slice, staging, dv);
      __syncthreads();
      put(ds, square);
      add_product<true>(square, q, p.d_qk, slice, staging, dk);
    }
  }
#pragma unroll
  for (int i = 0; i < kSide; ++i) {
    for (int j = 0; j < kSide; ++j) dk[i][j] *= p.scale;
  }
  store_slice(static_cast<T*>(p.dk) + p.dk_at.at(task.b, k0, task.head), p.dk_at.seq, k1 - k0, p.d_qk, slice, dk);
  store_slice(static_cast<T*>(p.dv) + p.dv_at.at(task.b, k0, task.head), p.dv_at.seq, k1 - k0, p.d_v, slice, dv);
}

/// Adds a tile of score gradients to the buckets of its distances: first sums along diagonals, then each thread its own
/// buckets. `diagonals` holds 2·64 numbers.
__device__ void add_to_buckets(const AttentionParams& p, const float (*square)[kTile + 1], int q0, int k0, float* out,
                               float* diagonals, int* buckets) {
  __syncthreads();  // `square` is complete; the previous diagonals have been read
  const int t = threadIdx.x;
  if (t < 2 * kTile - 1) {
    const int n = t - (kTile - 1);  // column − row
    float sum = 0;
    for (int r = max(0, -n); r < kTile && r + n < kTile; ++r) sum += square[r][r + n];
    diagonals[t] = sum;
    buckets[t] = p.bucket_of(k0 - q0 - p.mask.offset + n);
  }
  __syncthreads();
  for (int bucket = t; bucket < p.t5_buckets; bucket += kThreads) {
    float sum = 0;
    for (int n = 0; n < 2 * kTile - 1; ++n) sum += buckets[n] == bucket ? diagonals[n] : 0.0F;
    out[bucket] += sum;
  }
}

template <class T>
__global__ __launch_bounds__(kThreads) void query_gradient_kernel(const __grid_constant__ AttentionParams p) {
  __shared__ Staging staging;
  __shared__ float square[kTile][kTile + 1];
  __shared__ float diagonals[2 * kTile];
  __shared__ int buckets[2 * kTile];
  const int tiles = tiles_of(p.seq_q);
  const Task task(tiles, p.n_heads);
  const int tile = tiles - 1 - task.tile;
  const int q0 = tile * kTile;
  const int q1 = min(q0 + kTile, p.seq_q);
  const int slice = static_cast<int>(blockIdx.y) * kSlice;
  const int kv_head = task.head / p.group;
  const Rows<T> q = rows_of<T>(p.q, p.q_at, task.b, q0, task.head, p.seq_q);
  const Rows<T> dy = rows_of<T>(p.dy, p.y_at, task.b, q0, task.head, p.seq_q);
  float* dt5 = nullptr;
  if (p.dt5 != nullptr && slice == 0) {
    dt5 = p.dt5 + ((static_cast<int64_t>(task.b) * p.n_heads + task.head) * tiles + tile) * p.t5_buckets;
    for (int bucket = threadIdx.x; bucket < p.t5_buckets; bucket += kThreads) dt5[bucket] = 0;
  }
  float dq[kSide][kSide] = {};
  const int k_begin = max(p.mask.keys(q0).begin, 0) / kTile * kTile;
  const int k_end = min(p.mask.keys(q1 - 1).end, p.seq_k);
  for (int k0 = k_begin; k0 < k_end; k0 += kTile) {
    const Coverage coverage = p.mask.coverage(q0, q1, k0, min(k0 + kTile, p.seq_k));
    if (coverage == Coverage::none) continue;
    const Rows<T> k = rows_of<T>(p.k, p.k_at, task.b, k0, kv_head, p.seq_k);
    float s[kSide][kSide];
    float ds[kSide][kSide];
    float direct[kSide][kSide];
    multiply(q, k, p.d_qk, staging, s);
    multiply(dy, rows_of<T>(p.v, p.v_at, task.b, k0, kv_head, p.seq_k), p.d_v, staging, ds);
    find_gradients(p, task.b, task.head, q0, q1, k0, coverage == Coverage::partial, s, ds, direct);
    if (dt5 != nullptr) {
      __syncthreads();
      put(direct, square);
      add_to_buckets(p, square, q0, k0, dt5, diagonals, buckets);
    }
    __syncthreads();
    put(ds, square);
    add_product<false>(square, k, p.d_qk, slice, staging, dq);
  }
#pragma unroll
  for (int i = 0; i < kSide; ++i) {
    for (int j = 0; j < kSide; ++j) dq[i][j] *= p.scale;
  }
  store_slice(static_cast<T*>(p.dq) + p.dq_at.at(task.b, q0, task.head), p.dq_at.seq, q1 - q0, p.d_qk, slice, dq);
}

/// One block per tile of `seq` positions, head, batch row, and slice of the head width.
dim3 grid_of(int64_t seq, int64_t heads, int64_t batch, int64_t width) {
  const int64_t blocks = (seq + kTile - 1) / kTile * heads * batch;
  LAMINA_CHECK(blocks < int64_t{1} << 31, "attention: ", batch, " rows of ", heads, " heads and ", seq,
               " positions exceed the CUDA grid limit; use a smaller batch");
  return {static_cast<unsigned>(blocks), static_cast<unsigned>(std::max<int64_t>((width + kSlice - 1) / kSlice, 1)), 1};
}

}  // namespace

template <class T>
void forward_by_tiles(const AttentionParams& p, cudaStream_t stream) {
  const dim3 grid = grid_of(p.seq_q, p.n_heads, p.batch, p.d_v);
  if (grid.x == 0) return;
  forward_kernel<DeviceType<T>><<<grid, kThreads, 0, stream>>>(p);
  lamina::cuda::check_launch("attention");
}

template <class T>
void backward_by_tiles(const AttentionParams& p, cudaStream_t stream) {
  const dim3 keys = grid_of(p.seq_k, p.n_kv_heads, p.batch, std::max(p.d_qk, p.d_v));
  if (keys.x > 0) key_gradient_kernel<DeviceType<T>><<<keys, kThreads, 0, stream>>>(p);
  const dim3 queries = grid_of(p.seq_q, p.n_heads, p.batch, p.d_qk);
  if (queries.x > 0) query_gradient_kernel<DeviceType<T>><<<queries, kThreads, 0, stream>>>(p);
  lamina::cuda::check_launch("attention");
}

template void forward_by_tiles<float>(const AttentionParams&, cudaStream_t);
template void forward_by_tiles<bf16>(const AttentionParams&, cudaStream_t);
template void forward_by_tiles<f16>(const AttentionParams&, cudaStream_t);
template void backward_by_tiles<float>(const AttentionParams&, cudaStream_t);
template void backward_by_tiles<bf16>(const AttentionParams&, cudaStream_t);
template void backward_by_tiles<f16>(const AttentionParams&, cudaStream_t);

}  // namespace lamina::ops::cuda
