#pragma once

// Flash decoding over pages: arguments, the division of the work on the device, queries and the new token of a step.
//
// Work is divided when the kernel runs, so a captured CUDA graph stays valid while lengths change. A unit is a KV head
// of a row with up to kRows of its queries. The keys of a unit are split so that all units together give about one item
// per SM; blocks take items in turn. Long rows are split, short ones are not, whatever the batch looks like.

#include "lamina/ops/attention/cuda/mma/mma.cuh"
#include "lamina/ops/attention/paged/page_rows.cuh"
#include "lamina/ops/attention/paged/paged_step_kernel.h"
#include "lamina/tensor/cuda/split_f32.cuh"

namespace lamina::ops::cuda::paged {

using lamina::cuda::FaultSlot;
using lamina::cuda::kAllLanes;
using lamina::cuda::kWarp;

constexpr int kTileKeys = 16;    // per warp; a tile never crosses a page
constexpr int kLeastSplit = 32;  // tiles
constexpr int kFixedSplit = 64;  // tiles, if results must not depend on the rest of the batch
constexpr int kMostRows = 4096;

struct Params {
  PageRows rows;
  int n_heads;
  int group;  // query heads per KV head
  int d_qk;
  int d_v;
  int row_blocks;  // of the row with the most new tokens
  int places;      // items to aim for
  bool fixed;      // splits of fixed size
  DType q_type;
  const void* q;
  int64_t q_stride;  // elements between tokens
  const void* k;
  const void* v;  // null: the values are the first columns of the keys
  const float* k_scales;
  const float* v_scales;
  float scale;
  float soft_cap;
  bool plain;  // scores are only scaled, and masked by ranges of keys
  DeviceMask mask;
  const float* slopes;   // [n_heads], or null
  const float* t5_bias;  // [buckets, n_heads], or null
  int t5_buckets;
  int t5_max_distance;
  const float* sinks;  // [n_heads], or null
  float* parts;        // [items, kRows, d_v]: Σ weight · v
  float2* part_sums;   // [items, kRows]: max score, Σ weight
  int* counters;       // [rows, n_kv_heads, row_blocks]: finished splits; zero between launches
  void* y;
  FaultSlot* faults;
  // A step: the new token's key and value follow the queries of the packed projection.
  bool step;
  bool interleaved;
  int rotary_dim;  // 0: no rotation
  int table_row;   // entries per row of cos and sin: one per pair or per column
  int table_rows;
  const float* cos;
  const float* sin;
  const int64_t* positions;
};

/// The tokens of a row, its visible keys and their division.
struct RowWork {
  DeviceMask mask;
  int first_token;
  int count;   // new tokens; 0: nothing to do
  int length;  // 0: the output is zero
  int begin;   // first key visible to any query
  int end;
  int tiles;  // from tile begin / kTileKeys on
  int row_blocks;

  __device__ RowWork(const Params& p, int row, int rows_each) : mask(p.mask) {
    const int given = p.rows.lengths[row];
    first_token = p.rows.one_each ? row : p.rows.starts[row];
    count = p.rows.one_each ? 1 : p.rows.starts[row + 1] - first_token;
    if (count > static_cast<int>(kMostPagedQueries) || (given == 0 && !p.rows.one_each)) count = 0;
    const int capacity = p.rows.width << p.rows.page_bits;
    const bool possible = given == 0 || (given >= count && given <= capacity);
    if (!possible && count > 0 && blockIdx.x == 0) {
      lamina::cuda::report(p.faults, lamina::cuda::Fault::cache_length, given);
    }
    length = possible ? given : 0;
    mask.seq_q = count;
    mask.seq_k = length;
    mask.offset = length - count;
    begin = length == 0 || count == 0 ? 0 : max(mask.keys(0).begin, 0);
    end = length == 0 || count == 0 ? 0 : min(mask.keys(count - 1).end, length);
    tiles = end <= begin ? 0 : (end + kTileKeys - 1) / kTileKeys - begin / kTileKeys;
    row_blocks = (p.group * count + rows_each - 1) / rows_each;
  }
  __device__ int units(const Params& p) const { return p.rows.n_kv_heads * row_blocks; }
  __device__ int splits(int size) const { return max((tiles + size - 1) / size, 1); }
};

/// Division of all work: first_item[r] is the first item of row r, in shared memory.
template <int kThreads>
struct Division {
  int* first_item;  // [rows + 1]
  int size;         // tiles per split

  __device__ Division(const Params& p, int rows_each, int* shared, long long* scratch) : first_item(shared) {
    const int thread = static_cast<int>(threadIdx.x);
    long long tiles = 0;
    for (int r = thread; r < p.rows.rows; r += kThreads) {
      const RowWork work(p, r, rows_each);
      tiles += static_cast<long long>(work.tiles) * work.units(p);
    }
    for (int step = kWarp / 2; step > 0; step /= 2) tiles += __shfl_xor_sync(kAllLanes, tiles, step);
    if (thread % kWarp == 0) scratch[thread / kWarp] = tiles;
    __syncthreads();
    tiles = 0;
    for (int w = 0; w < kThreads / kWarp; ++w) tiles += scratch[w];
    size = p.fixed ? kFixedSplit : max(static_cast<int>((tiles + p.places - 1) / p.places), kLeastSplit);
    __syncthreads();
    int carry = 0;
    auto* sums = reinterpret_cast<int*>(scratch);
    for (int first = 0; first < p.rows.rows; first += kThreads) {  // uniform loop bounds
      const int r = first + thread;
      int items = 0;
      if (r < p.rows.rows) {
        const RowWork work(p, r, rows_each);
        items = work.count == 0 ? 0 : work.splits(size) * work.units(p);
      }
      int running = items;
      for (int step = 1; step < kWarp; step *= 2) {
        const int other = __shfl_up_sync(kAllLanes, running, step);
        if (thread % kWarp >= step) running += other;
      }
      if (thread % kWarp == kWarp - 1) sums[thread / kWarp] = running;
      __syncthreads();
      int before = carry;
      for (int w = 0; w < kThreads / kWarp; ++w) {
        if (w < thread / kWarp) before += sums[w];
        carry += sums[w];
      }
      if (r < p.rows.rows) first_item[r] = before + running - items;
      __syncthreads();
    }
    if (thread == 0) first_item[p.rows.rows] = carry;
    __syncthreads();
  }
  /// The row of an item: the last one that begins at or before it.
  __device__ int row_of(const Params& p, int item) const {
    int low = 0;
    int high = p.rows.rows - 1;
    while (low < high) {
      const int middle = (low + high + 1) / 2;
      if (first_item[middle] <= item) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return low;
  }
};

/// The score of q·k in log2 units; −inf if the query may not see the key.
__device__ __noinline__ inline float paged_score(const Params& p, const DeviceMask& mask, float dot, int head,
                                                 int query, int key) {
  if (!mask.allows(query, mask.keys(query), key)) return -INFINITY;
  float s = dot * p.scale;
  if (p.soft_cap > 0) s = p.soft_cap * tanhf(s / p.soft_cap);
  const int distance = key - query - mask.offset;
  if (p.slopes != nullptr) s -= p.slopes[head] * static_cast<float>(abs(distance));
  if (p.t5_bias != nullptr) {
    const int bucket = t5_bucket_of(distance, !mask.causal, p.t5_buckets, p.t5_max_distance);
    s += p.t5_bias[static_cast<int64_t>(bucket) * p.n_heads + head];
  }
  return s * kLog2E;
}

__device__ inline float load_number(const void* from, DType type, int64_t at) {
  if (type == DType::f32) return static_cast<const float*>(from)[at];
  if (type == DType::bf16) return to_float(static_cast<const __nv_bfloat16*>(from)[at]);
  return to_float(static_cast<const __half*>(from)[at]);
}
__device__ inline void store_number(void* to, DType type, int64_t at, float value) {
  if (type == DType::f32) {
    static_cast<float*>(to)[at] = value;
  } else if (type == DType::bf16) {
    static_cast<__nv_bfloat16*>(to)[at] = from_float<__nv_bfloat16>(value);
  } else {
    static_cast<__half*>(to)[at] = from_float<__half>(value);
  }
}
__device__ inline float rounded_to(DType type, float value) {
  if (type == DType::bf16) return to_float(from_float<__nv_bfloat16>(value));
  if (type == DType::f16) return to_float(from_float<__half>(value));
  return value;
}

/// Eight consecutive numbers of type T at a 16-byte aligned address.
template <class T>
__device__ inline void load_pack_of(const void* from, int64_t at, float (&out)[8]) {
  constexpr int kEach = lamina::cuda::Pack<T>::kSize;
#pragma unroll
  for (int n = 0; n < 8 / kEach; ++n) {
    const lamina::cuda::Pack<T> pack = lamina::cuda::load_pack(static_cast<const T*>(from) + at + n * kEach);
#pragma unroll
    for (int i = 0; i < kEach; ++i) out[n * kEach + i] = to_float(pack.values[i]);
  }
}
__device__ inline void load_eight(const void* from, DType type, int64_t at, float (&out)[8]) {
  if (type == DType::f32) {
    load_pack_of<float>(from, at, out);
  } else if (type == DType::bf16) {
    load_pack_of<__nv_bfloat16>(from, at, out);
  } else {
    load_pack_of<__half>(from, at, out);
  }
}

/// Columns [column, column + 8) of head `head` of a token of the projection, rotated if `turns`. Rotated halves or
/// pairs consist of whole groups of eight columns.
__device__ inline void load_head(const Params& p, int token, int head, int column, bool turns, float (&x)[8]) {
  const int64_t at = token * p.q_stride + static_cast<int64_t>(head) * p.d_qk + column;
  load_eight(p.q, p.q_type, at, x);
  if (!turns || column >= p.rotary_dim) return;
  const int half = p.rotary_dim / 2;
  float other[8];
  if (p.interleaved) {
#pragma unroll
    for (int i = 0; i < 8; ++i) other[i] = x[i ^ 1];
  } else {
    load_eight(p.q, p.q_type, column < half ? at + half : at - half, other);
  }
  int64_t position = p.positions[token];
  if (position < 0 || position >= p.table_rows) {
    lamina::cuda::report(p.faults, lamina::cuda::Fault::position, position);
    position = 0;
  }
  const bool per_pair = p.table_row < p.rotary_dim;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int c = column + i;
    const bool second = p.interleaved ? i % 2 != 0 : column >= half;
    const int angle = !per_pair ? c : p.interleaved ? c / 2 : second ? c - half : c;
    const float cosine = p.cos[position * p.table_row + angle];
    const float sine = p.sin[position * p.table_row + angle];
    x[i] = rounded_to(p.q_type, fmaf(x[i], cosine, other[i] * (second ? sine : -sine)));
  }
}

/// Rotates, converts and stores the new key (warp 0) and value (warp 1) of a row. Blocks that share the row's last
/// split store the same bytes. The block must synchronize before it reads them back.
template <class C>
__device__ void store_new_token(const Params& p, const RowWork& work, int row, int kv_head) {
  const int part = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  if (part >= 2) return;
  const int column = lane * 8;
  const bool inside = column < p.d_qk;
  float x[8] = {};
  if (inside) load_head(p, work.first_token, p.n_heads + part * p.rows.n_kv_heads + kv_head, column, part == 0, x);
  __syncwarp();
  const int position = work.length - 1;
  const int page = p.rows.page_of(row, position);
  if (page < 0) {
    if (lane == 0) lamina::cuda::report(p.faults, lamina::cuda::Fault::cache_place, position);
    return;
  }
  const int64_t entry = p.rows.entry(page, kv_head, position);
  C* to = static_cast<C*>(const_cast<void*>(part == 0 ? p.k : p.v)) + entry * p.d_qk + column;
  if constexpr (std::is_same_v<C, uint8_t>) {
    unsigned most = 0;  // bit patterns compare like magnitudes; NaN is the largest
#pragma unroll
    for (int i = 0; i < 8; ++i) most = max(most, __float_as_uint(fabsf(x[i])));
    const RowScale scale = row_scale(__uint_as_float(__reduce_max_sync(kAllLanes, most)));
    if (lane == 0) const_cast<float*>(part == 0 ? p.k_scales : p.v_scales)[entry] = scale.scale;
    if (!inside) return;
    lamina::cuda::Vec<uint8_t, 8> codes;
#pragma unroll
    for (int i = 0; i < 8; ++i) codes.values[i] = static_cast<uint8_t>(__float2int_rn(x[i] * scale.inverse) + 128);
    lamina::cuda::store_vector_plain(to, codes);
  } else {
    if (!inside) return;
    lamina::cuda::Pack<C> pack;
    static_assert(lamina::cuda::Pack<C>::kSize == 8);
#pragma unroll
    for (int i = 0; i < 8; ++i) pack.values[i] = from_float<C>(x[i]);
    lamina::cuda::store_pack(to, pack);
  }
}

}  // namespace lamina::ops::cuda::paged
