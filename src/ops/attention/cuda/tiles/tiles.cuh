#pragma once

// Fallback attention with tiles of 64 queries × 64 keys and f32 FMAs, for every width, option and dtype. Used for f32
// and for cases without a tensor-core kernel.
//
// A block of 256 threads holds a tile of scores in registers, 4 × 4 per thread. Scores are computed through shared
// memory, 32 columns of q and k at a time, so any d_qk works. A block holds kSlice columns of the outputs (y, dq, or dk
// and dv); wider heads use several blocks, each of which computes the scores again. Forward keeps the running maximum
// and sum of a row in the registers of the 16 threads that share the row.
//
// Backward is two kernels: one block per key tile for dk and dv, one per query tile for dq and dt5. Every sum is
// accumulated by one block in a fixed order, without atomics, so results are deterministic. dk and dv are summed from
// the last query to the first. With a causal mask the weights of a key are largest for its first queries, and adding
// small terms to a large sum loses precision.

#include "lamina/ops/attention/cuda/mma/mma.cuh"

namespace lamina::ops::cuda::tiles {

constexpr int kTile = kTileQueries;
constexpr int kDepth = 32;
constexpr int kSlice = 64;
constexpr int kThreads = 256;
constexpr int kSide = 4;  // rows, and columns, of a tile per thread

using Coverage = DeviceMask::Coverage;
using Range = DeviceMask::Range;

/// The rows and columns of a tile that thread t holds: rows 4·(t / 16) + i, columns t % 16 + 16·j.
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

/// Copies columns from c0 on to shared memory. The source has `count` rows with row stride `stride`, and `width`
/// columns; elements outside become zero.
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

/// The rows of a head from some position on.
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

/// out = a bᵀ over `width` columns.
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

/// out += a · b over the 64 rows of b, for columns 4·(t % 16) … of the slice, in thread t. If kTransposed, `a` is read
/// by columns and the rows of b from last to first. Copies b to shared memory itself.
template <bool kTransposed, class T>
__device__ void add_product(const float (*a)[kTile + 1], const Rows<T>& b, int width, int c0, Staging& staging,
                            float out[kSide][kSide]) {
  const Place place;
  __syncthreads();  // `a` is complete, and `staging` may be overwritten
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

/// Writes a slice that add_product() computed.
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

/// e^x for x <= 0, to within 1 ulp; 0 below −87. The error of the hardware's ex2.approx has a bias, which would
/// accumulate in a sum over many weights; this function's has none.
__device__ inline float exp_of(float x) {
  const float n = rintf(x * kLog2E);
  float r = fmaf(n, -0.693359375F, x);  // ln 2 is split in two parts
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
__device__ inline float row_sum(float value) {
  for (int step = 8; step > 0; step /= 2) value += __shfl_xor_sync(lamina::cuda::kAllLanes, value, step);
  return value;
}
__device__ inline float warp_row_max(float value) {
  for (int step = 8; step > 0; step /= 2) value = fmaxf(value, __shfl_xor_sync(lamina::cuda::kAllLanes, value, step));
  return value;
}

/// The tile, head and batch row that a block handles.
struct Task {
  int tile;
  int head;
  int b;
  __device__ Task(int tiles, int heads)
      : tile(static_cast<int>(blockIdx.x % tiles)),
        head(static_cast<int>(blockIdx.x / tiles % heads)),
        b(static_cast<int>(blockIdx.x / tiles / heads)) {}
};

__device__ inline int tiles_of(int count) { return (count + kTile - 1) / kTile; }

/// Dropout bits of a thread's weights: bit 4·i + j for row i and column j. `query` and `key` belong to the first
/// weight. In each of the tile's four groups of 16 keys, four threads share the keys of a patch. Each of them generates
/// two patches, one below the other, for one group.
__device__ __noinline__ inline uint32_t draw_kept(const AttentionParams& p, int b, int head, int query, int key) {
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

/// The dropout factors of a thread's weights.
struct DropoutFactors {
  uint32_t bits;
  float factor;
  __device__ DropoutFactors(const AttentionParams& p, int b, int head, int query, int key)
      : bits(p.dropout.active() ? draw_kept(p, b, head, query, key) : ~0U), factor(p.dropout.factor) {}
  __device__ float of(int i, int j) const { return (bits >> (4 * i + j) & 1) != 0 ? factor : 0.0F; }
};

/// A grid with one block per tile of `seq` positions, head, batch row, and slice of the head width.
inline dim3 grid_of(int64_t seq, int64_t heads, int64_t batch, int64_t width) {
  const int64_t blocks = (seq + kTile - 1) / kTile * heads * batch;
  LAMINA_CHECK(blocks < int64_t{1} << 31, "attention: ", batch, " rows of ", heads, " heads and ", seq,
               " positions exceed the CUDA grid limit; use a smaller batch");
  return {static_cast<unsigned>(blocks), static_cast<unsigned>(std::max<int64_t>((width + kSlice - 1) / kSlice, 1)), 1};
}

}  // namespace lamina::ops::cuda::tiles
