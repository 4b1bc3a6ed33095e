#pragma once

// Flash decoding over pages: arguments, and how the work is divided on the device.
//
// Work is divided when the kernel runs, so a captured CUDA graph stays valid while lengths change. A unit is a KV head
// of a row with up to kRows of its queries. A short row is never split, so a block finds its units from its own index
// and needs no other row's length. If the batch has long rows, all blocks then divide these: the keys of their units
// are split into about Params::places items, which the blocks take in turn.

#include "lamina/ops/attention/cuda/mma/mma.cuh"
#include "lamina/ops/attention/paged/page_rows.cuh"
#include "lamina/ops/attention/paged/paged_step_kernel.h"
#include "lamina/tensor/cuda/number.cuh"
#include "lamina/tensor/cuda/split_f32.cuh"

namespace lamina::ops::cuda::paged {

using lamina::cuda::FaultSlot;
using lamina::cuda::kAllLanes;
using lamina::cuda::kWarp;
using lamina::cuda::load_number;
using lamina::cuda::rounded_to;
using lamina::cuda::store_number;

constexpr int kTileKeys = 16;    // keys of a tile, per warp; a tile never crosses a page
constexpr int kLeastSplit = 32;  // minimum tiles per split
constexpr int kFixedSplit = 64;  // tiles per split, if results must not depend on the rest of the batch
constexpr int kMostRows = 4096;

struct Params {
  PageRows rows;
  int n_heads;
  int group;  // query heads per KV head
  int d_qk;
  int d_v;
  int row_blocks;  // blocks of queries in the row with the most new tokens
  int units;       // rows · row_blocks · n_kv_heads
  int places;      // number of items to aim for
  bool fixed;      // splits have a fixed size
  DType q_type;
  const void* q;
  int64_t q_stride;  // elements from one token to the next
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
  int* counters;       // [rows, n_kv_heads, row_blocks]: number of finished splits; zero between launches
  void* y;
  FaultSlot* faults;
  // For a step: the new token's key and value follow its queries in the packed projection.
  bool step;
  bool settled;  // see PagedStep::settled
  bool interleaved;
  int rotary_dim;  // 0: no rotation
  int table_row;   // entries per row of cos and sin: one per pair or one per column
  int table_rows;
  const float* cos;
  const float* sin;
  const int64_t* positions;

  /// A row with at most this many tiles is short.
  __device__ int unsplit_tiles() const { return fixed ? kFixedSplit : kLeastSplit; }
};

/// The mask of a row with `count` new tokens and `length` tokens in all.
__device__ inline DeviceMask row_mask(const Params& p, int count, int length) {
  DeviceMask mask = p.mask;
  mask.seq_q = count;
  mask.seq_k = length;
  mask.offset = length - count;
  return mask;
}

/// The new tokens of a row, the keys that they see, and the division of these keys.
struct RowWork {
  DeviceMask mask;
  int first_token;
  int count;   // number of new tokens; 0: nothing to do
  int length;  // 0: the output is zero
  int begin;   // first key that any query sees
  int end;
  int tiles;  // number of tiles, starting with tile begin / kTileKeys
  int row_blocks;
  int given;      // length as stored in device memory
  bool possible;  // false: the length is invalid; it was reported, and the row counts as empty

  RowWork() = default;
  __device__ RowWork(const Params& p, int row, int rows_each) {
    given = p.rows.lengths[row];
    first_token = p.rows.one_each ? row : p.rows.starts[row];
    count = p.rows.one_each ? 1 : p.rows.starts[row + 1] - first_token;
    if (count > static_cast<int>(kMostPagedQueries) || (given == 0 && !p.rows.one_each)) count = 0;
    const int capacity = p.rows.width << p.rows.page_bits;
    possible = given == 0 || (given >= count && given <= capacity);
    length = possible ? given : 0;
    mask = row_mask(p, count, length);
    begin = length == 0 || count == 0 ? 0 : max(mask.keys(0).begin, 0);
    end = length == 0 || count == 0 ? 0 : min(mask.keys(count - 1).end, length);
    tiles = end <= begin ? 0 : (end + kTileKeys - 1) / kTileKeys - begin / kTileKeys;
    row_blocks = (p.group * count + rows_each - 1) / rows_each;
  }
  __device__ int units(const Params& p) const { return p.rows.n_kv_heads * row_blocks; }
  __device__ bool is_short(const Params& p) const { return tiles <= p.unsplit_tiles(); }
  __device__ int splits(int size) const { return max((tiles + size - 1) / size, 1); }
  __device__ void report_fault(const Params& p) const {
    if (!possible && count > 0) lamina::cuda::report(p.faults, lamina::cuda::Fault::cache_length, given);
  }
};

/// Fills first_item for splits of at most `size` tiles, and returns the number of items. All threads of the block must
/// call it.
template <int kThreads>
__device__ int first_items(const Params& p, int rows_each, int size, int* first_item, int* sums) {
  const int thread = static_cast<int>(threadIdx.x);
  int carry = 0;
  for (int first = 0; first < p.rows.rows; first += kThreads) {  // the loop bounds are uniform over the block
    const int r = first + thread;
    int items = 0;
    if (r < p.rows.rows) {
      const RowWork work(p, r, rows_each);
      items = work.is_short(p) ? 0 : work.splits(size) * work.units(p);
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
  return carry;
}

/// Divides the long rows into items: first_item[r] (shared memory, [rows + 1]) becomes the first item of row r. Short
/// rows have no items. Returns the largest number of tiles in a split. If there are more items than places although the
/// units alone would fit, splits become longer, because a second wave of few items would cost as much as the first. All
/// threads of the block must call it.
template <int kThreads>
__device__ int divide_long_rows(const Params& p, int rows_each, int* first_item, long long* scratch) {
  const int thread = static_cast<int>(threadIdx.x);
  long long tiles = 0;
  for (int r = thread; r < p.rows.rows; r += kThreads) {
    const RowWork work(p, r, rows_each);
    if (!work.is_short(p)) tiles += static_cast<long long>(work.tiles) * work.units(p);
  }
  for (int step = kWarp / 2; step > 0; step /= 2) tiles += __shfl_xor_sync(kAllLanes, tiles, step);
  if (thread % kWarp == 0) scratch[thread / kWarp] = tiles;
  __syncthreads();
  tiles = 0;
  for (int w = 0; w < kThreads / kWarp; ++w) tiles += scratch[w];
  int size = p.fixed ? kFixedSplit : max(static_cast<int>((tiles + p.places - 1) / p.places), kLeastSplit);
  __syncthreads();
  constexpr int kMostTurns = 4;
  for (int turn = 0;; ++turn) {
    const int items = first_items<kThreads>(p, rows_each, size, first_item, reinterpret_cast<int*>(scratch));
    if (p.fixed || p.units > p.places || items <= p.places || turn == kMostTurns) return size;
    const auto longer = (static_cast<long long>(size) * items + p.places - 1) / p.places;
    size = max(static_cast<int>(longer), size + 1);
  }
}

/// The row of an item: the last row whose first item is not after it.
__device__ inline int row_of(const Params& p, const int* first_item, int item) {
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

/// Converts q·k to a score in log2 units, with bias, soft cap and mask; −inf if the query does not see the key. The
/// mask is built again here, because a mask that is passed by reference would be in local memory in every caller.
__device__ __noinline__ inline float paged_score(const Params& p, int count, int length, float dot, int head, int query,
                                                 int key) {
  const DeviceMask mask = row_mask(p, count, length);
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

/// Stores four numbers at an address aligned to their size.
__device__ inline void store_four(void* to, DType type, int64_t at, const float (&x)[4]) {
  if (type == DType::f32) {
    lamina::cuda::store_vector_plain(static_cast<float*>(to) + at, float4{x[0], x[1], x[2], x[3]});
  } else if (type == DType::bf16) {
    lamina::cuda::store_vector_plain(static_cast<__nv_bfloat16*>(to) + at,
                                     uint2{pack_pair<__nv_bfloat16>(x[0], x[1]), pack_pair<__nv_bfloat16>(x[2], x[3])});
  } else {
    lamina::cuda::store_vector_plain(static_cast<__half*>(to) + at,
                                     uint2{pack_pair<__half>(x[0], x[1]), pack_pair<__half>(x[2], x[3])});
  }
}

}  // namespace lamina::ops::cuda::paged
