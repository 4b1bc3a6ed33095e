#pragma once

// Shared by the decoding kernels: arguments, the division of the keys into splits, access to the KV cache, and merging
// of partial softmax results across lanes, warps and blocks.

#include <type_traits>

#include "lamina/ops/attention/cuda/mma/mma.cuh"
#include "lamina/tensor/cuda/number.cuh"

namespace lamina::ops::cuda {

using lamina::cuda::FaultSlot;
using lamina::cuda::kAllLanes;
using lamina::cuda::kWarp;
using lamina::cuda::load_number;
using lamina::cuda::store_number;

constexpr int kDecodeThreads = 256;
constexpr int kDecodeWarps = kDecodeThreads / kWarp;
constexpr int kColumns = 8;           // columns per lane
constexpr int kLeastSplit = 128;      // minimum number of keys per split
constexpr int kMaxClusterSplits = 8;  // splits that a cluster of blocks can combine

struct DecodeParams {
  int batch;
  int seq_q;
  int capacity;
  int n_heads;
  int n_kv_heads;
  int group;
  int d_qk;
  int d_v;
  int rows;  // queries per KV head: group · seq_q; those of one head are adjacent
  int splits;
  int lanes;  // lanes per key
  DType q_type;
  bool long_lengths;  // lengths are i64, else i32
  const void* q;
  const void* k;
  const void* v;
  const float* k_scales;  // [batch, n_kv_heads, capacity] for 8-bit caches, or null
  const float* v_scales;
  const void* lengths;  // [batch]: keys in use; in a step, the cache positions of the new tokens
  int64_t q_stride;     // elements between consecutive positions of q
  // A step: the last key and value are those of the new token, which follow its queries in the packed projection.
  bool step;
  bool interleaved;  // pair layout of the rotary embedding in a step
  int rotary_dim;    // in a step; 0: no rotation
  int table_row;     // entries per row of cos and sin: one per pair or one per column
  int table_rows;
  const float* cos;
  const float* sin;
  const int64_t* positions;
  float scale;
  float soft_cap;
  DeviceMask mask;       // the mask if the cache were full
  const float* slopes;   // [n_heads], or null
  const float* t5_bias;  // [buckets, n_heads], or null
  int t5_buckets;
  int t5_max_distance;
  const float* sinks;  // [n_heads], or null
  float* parts;        // [batch, n_kv_heads, rows, splits, d_v]: Σ weight · v
  float2* part_sums;   // [batch, n_kv_heads, rows, splits]: max score, Σ weight
  bool clustered;      // the splits of a unit form a cluster; else a second kernel combines them
  void* y;
  FaultSlot* faults;

  // Integer division is slow and on the critical path; a single position needs none.
  __device__ int head_of(int kv_head, int row) const { return kv_head * group + (seq_q == 1 ? row : row / seq_q); }
  __device__ int position_of(int row) const { return seq_q == 1 ? 0 : row % seq_q; }
  __device__ int64_t part(int b, int kv_head, int row, int split) const {
    return ((static_cast<int64_t>(b) * n_kv_heads + kv_head) * rows + row) * splits + split;
  }
  /// Index of the first element of a row of q.
  __device__ int64_t q_at(int b, int kv_head, int row) const {
    return (static_cast<int64_t>(b) * seq_q + position_of(row)) * q_stride +
           static_cast<int64_t>(head_of(kv_head, row)) * d_qk;
  }
  __device__ int64_t y_at(int b, int kv_head, int row) const {
    return ((static_cast<int64_t>(b) * seq_q + position_of(row)) * n_heads + head_of(kv_head, row)) * d_v;
  }
  __device__ float sink_of(int kv_head, int row) const {
    return sinks == nullptr ? kMinusLarge : sinks[head_of(kv_head, row)] * kLog2E;
  }
  __device__ int64_t cache_at(int b, int kv_head, int key, int width) const {
    return ((static_cast<int64_t>(b) * n_kv_heads + kv_head) * capacity + key) * width;
  }
};

/// Number of keys per split.
__device__ inline int keys_of_share(const DecodeParams& p, int keys) {
  const int each = max(p.splits == 1 ? keys : (keys + p.splits - 1) / p.splits, 1);
  return (each + kLeastSplit - 1) / kLeastSplit * kLeastSplit;
}

/// The keys of a batch row that its queries see, and their division into splits.
struct KeySplits {
  DeviceMask mask;
  int begin;  // first key that any query sees
  int end;
  int each;   // keys per split
  int count;  // number of splits that have keys

  /// Reads the length. If it or a position is invalid, reports it and treats the row as empty.
  __device__ KeySplits(const DecodeParams& p, int b) : mask(p.mask) {
    const int64_t given =
        p.long_lengths ? static_cast<const int64_t*>(p.lengths)[b] : static_cast<const int32_t*>(p.lengths)[b];
    const bool possible =
        p.step ? given >= 0 && given < p.capacity : given == 0 || (given >= p.seq_q && given <= p.capacity);
    if (!possible && threadIdx.x == 0) {
      lamina::cuda::report(p.faults, p.step ? lamina::cuda::Fault::cache_place : lamina::cuda::Fault::cache_length,
                           given);
    }
    const int length = possible ? static_cast<int>(given) + (p.step ? 1 : 0) : 0;
    mask.seq_k = length;
    mask.offset = length - p.seq_q;
    begin = length == 0 ? 0 : max(mask.keys(0).begin, 0);
    end = length == 0 ? 0 : min(mask.keys(p.seq_q - 1).end, length);
    const int keys = max(end - begin, 0);
    each = keys_of_share(p, keys);
    count = keys <= each ? min(keys, 1) : (keys + each - 1) / each;
  }
};

/// Converts q·k to a score in log2 units, with bias, soft cap and mask; −inf if the query does not see the key.
__device__ __noinline__ inline float decode_score(const DecodeParams& p, const DeviceMask& mask, float dot, int head,
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

/// An element of the KV cache as float. Bytes hold q + 128 and become q; their scales multiply scores and weights.
template <class T>
__device__ inline float cached(T value) {
  if constexpr (std::is_same_v<T, uint8_t>) {
    return static_cast<float>(static_cast<int>(value) - 128);
  } else {
    return to_float(value);
  }
}

/// Eight consecutive elements as they are stored: 16 bytes, or 32 bytes for f32.
template <class T>
struct RawColumns {
  uint4 words[sizeof(T) * kColumns / 16];

  __device__ void load(const T* from, bool inside) {
#pragma unroll
    for (int n = 0; n < static_cast<int>(sizeof(T) * kColumns / 16); ++n) {
      words[n] = inside ? reinterpret_cast<const uint4*>(from)[n] : uint4{0, 0, 0, 0};
    }
  }
  __device__ void store(T* to) const {
#pragma unroll
    for (int n = 0; n < static_cast<int>(sizeof(T) * kColumns / 16); ++n) reinterpret_cast<uint4*>(to)[n] = words[n];
  }
  __device__ void pack(const float (&x)[kColumns]) {
    lamina::cuda::Pack<T> packs[sizeof(T) * kColumns / 16];
    constexpr int kEach = lamina::cuda::Pack<T>::kSize;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) packs[c / kEach].values[c % kEach] = from_float<T>(x[c]);
#pragma unroll
    for (int n = 0; n < kColumns / kEach; ++n) words[n] = *reinterpret_cast<const uint4*>(&packs[n]);
  }
  __device__ void unpack(float (&out)[kColumns]) const {
    const uint32_t parts[4] = {words[0].x, words[0].y, words[0].z, words[0].w};
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      if constexpr (std::is_same_v<T, __nv_bfloat16>) {
        out[2 * n] = __uint_as_float(parts[n] << 16);
        out[2 * n + 1] = __uint_as_float(parts[n] & 0xffff0000U);
      } else if constexpr (std::is_same_v<T, __half>) {
        const float2 pair = __half22float2(*reinterpret_cast<const __half2*>(&parts[n]));
        out[2 * n] = pair.x;
        out[2 * n + 1] = pair.y;
      } else {
        const uint4& more = words[sizeof(T) == 4 ? 1 : 0];
        const uint32_t others[4] = {more.x, more.y, more.z, more.w};
        out[n] = __uint_as_float(parts[n]);
        out[n + 4] = __uint_as_float(others[n]);
      }
    }
  }
};

/// Eight bytes, each of which holds q + 128.
template <>
struct RawColumns<uint8_t> {
  uint2 words;

  __device__ void load(const uint8_t* from, bool inside) {
    words = inside ? *reinterpret_cast<const uint2*>(from) : uint2{0x80808080U, 0x80808080U};
  }
  __device__ void store(uint8_t* to) const { *reinterpret_cast<uint2*>(to) = words; }
  /// Packs values that were already multiplied by row_scale().inverse.
  __device__ void pack(const float (&x)[kColumns]) {
    uint32_t halves[2] = {0, 0};
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const auto byte = static_cast<uint8_t>(__float2int_rn(x[c]) + 128);
      halves[c / 4] |= static_cast<uint32_t>(byte) << (8 * (c % 4));
    }
    words = {halves[0], halves[1]};
  }
  /// Puts each byte into the low mantissa bits of 2^23, which gives the float 2^23 + 128 + q. This avoids the
  /// conversion instruction, which has low throughput.
  __device__ void unpack(float (&out)[kColumns]) const {
    constexpr uint32_t kBase = 0x4B000000U;  // 2^23
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      out[n] = __uint_as_float(__byte_perm(words.x, kBase, 0x7650 + n)) - 8388736.0F;
      out[n + 4] = __uint_as_float(__byte_perm(words.y, kBase, 0x7650 + n)) - 8388736.0F;
    }
  }
};

/// Loads a lane's columns of kRows rows of q. Rows past the last one repeat it.
template <int kRows, class T>
__device__ void load_rows(const DecodeParams& p, int b, int kv_head, int first_row, int column,
                          float (&out)[kRows][kColumns]) {
  RawColumns<T> raw[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int row = min(first_row + r, p.rows - 1);
    raw[r].load(static_cast<const T*>(p.q) + p.q_at(b, kv_head, row) + column, column < p.d_qk);
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) raw[r].unpack(out[r]);
}
template <int kRows>
__device__ void load_queries(const DecodeParams& p, int b, int kv_head, int first_row, int column,
                             float (&out)[kRows][kColumns]) {
  if (p.q_type == DType::f32) {
    load_rows<kRows, float>(p, b, kv_head, first_row, column, out);
  } else if (p.q_type == DType::bf16) {
    load_rows<kRows, __nv_bfloat16>(p, b, kv_head, first_row, column, out);
  } else {
    load_rows<kRows, __half>(p, b, kv_head, first_row, column, out);
  }
}

/// Merges the lane groups of a warp. Afterwards every lane holds the sums of its columns over the whole warp.
template <int kRows>
__device__ void merge_groups(int lanes, float (&acc)[kRows][kColumns], float (&most)[kRows], float (&sum)[kRows]) {
  for (int step = lanes; step < kWarp; step *= 2) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float row_max = fmaxf(most[r], __shfl_xor_sync(kAllLanes, most[r], step));
      const float weight = fast_exp2(most[r] - row_max);
      most[r] = row_max;
      sum[r] *= weight;
      sum[r] += __shfl_xor_sync(kAllLanes, sum[r], step);
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        acc[r][c] *= weight;
        acc[r][c] += __shfl_xor_sync(kAllLanes, acc[r][c], step);
      }
    }
  }
}

// Barriers of a cluster. Every thread arrives once before the first block's shared memory is written, and once after.
// Threads that have exited count as arrived.
__device__ inline void cluster_arrive() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
#endif
}
__device__ inline void cluster_wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
#endif
}
/// Converts a shared-memory address to the same address in the first block of the cluster.
template <class V>
__device__ V* in_first_block(V* shared) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  uint64_t address;
  asm("mapa.u64 %0, %1, 0;" : "=l"(address) : "l"(reinterpret_cast<uint64_t>(shared)));
  return reinterpret_cast<V*>(address);
#else
  return shared;
#endif
}

/// One output column of a row, merged from the partial results of several warps or blocks.
struct MergedSoftmax {
  float row_max;
  float sum;
  float value;

  /// found: (max score, Σ weight) of each part. The parts' values of this column are `stride` floats apart.
  __device__ MergedSoftmax(const float2* found, int count, const float* values, int stride, float sink)
      : row_max(fmaxf(sink, kMinusLarge)), value(0) {
#pragma unroll 8
    for (int n = 0; n < count; ++n) row_max = fmaxf(row_max, found[n].x);
    sum = sink > kMinusLarge ? fast_exp2(sink - row_max) : 0.0F;
#pragma unroll 8
    for (int n = 0; n < count; ++n) {
      const float weight = fast_exp2(found[n].x - row_max);
      sum = fmaf(weight, found[n].y, sum);
      value = fmaf(weight, values[n * stride], value);
    }
  }
  __device__ float result() const { return sum != 0 ? value / sum : 0.0F; }
};

/// Merges the warps of a block and, if the splits form a cluster, its blocks, in the shared memory of the first block.
/// `sums` then has kRows · (kDecodeWarps + splits) · lanes · kColumns floats, followed by kRows · splits pairs. Writes
/// y, or a part for the combine kernel.
template <int kRows>
__device__ void merge_split(const DecodeParams& p, int b, int kv_head, int first_row, int count,
                            float (&acc)[kRows][kColumns], float (&most)[kRows], float (&sum)[kRows], float* sums,
                            float2 (*stats)[kDecodeWarps]) {
  merge_groups<kRows>(p.lanes, acc, most, sum);
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int width = p.lanes * kColumns;  // a power of two
  const int width_bits = 31 - __clz(width);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (lane == 0) stats[r][warp] = {most[r], sum[r]};
    if (lane >= p.lanes) continue;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) sums[(r * kDecodeWarps + warp) * width + lane * kColumns + c] = acc[r][c];
  }
  __syncthreads();
  const int rows = min(kRows, p.rows - first_row);
  const int split = static_cast<int>(blockIdx.x);
  const bool alone = count == 1 && (p.splits == 1 || p.clustered);
  float* shared_values = sums + kRows * kDecodeWarps * width;  // [kRows, splits, width], in the first block
  auto* shared_stats = reinterpret_cast<float2*>(shared_values + kRows * p.splits * width);
  if (p.clustered && !alone) cluster_wait();  // the first block has started
  for (int n = threadIdx.x; n < rows * width; n += kDecodeThreads) {
    const int r = n >> width_bits;
    const int c = n & (width - 1);
    if (c >= p.d_v) continue;
    const MergedSoftmax own(stats[r], kDecodeWarps, sums + r * kDecodeWarps * width + c, width,
                            alone ? p.sink_of(kv_head, first_row + r) : kMinusLarge);
    if (alone) {
      store_number(p.y, p.q_type, p.y_at(b, kv_head, first_row + r) + c, own.result());
    } else if (p.clustered) {
      const int at = r * p.splits + split;
      *in_first_block(shared_values + at * width + c) = own.value;
      if (c == 0) *in_first_block(shared_stats + at) = float2{own.row_max, own.sum};
    } else {
      const int64_t at = p.part(b, kv_head, first_row + r, split);
      p.parts[at * p.d_v + c] = own.value;
      if (c == 0) p.part_sums[at] = {own.row_max, own.sum};
    }
  }
  if (alone || !p.clustered) return;
  cluster_arrive();
  if (split > 0) return;
  cluster_wait();
  for (int n = threadIdx.x; n < rows * width; n += kDecodeThreads) {
    const int r = n >> width_bits;
    const int c = n & (width - 1);
    if (c >= p.d_v) continue;
    const MergedSoftmax all(shared_stats + r * p.splits, count, shared_values + r * p.splits * width + c, width,
                            p.sink_of(kv_head, first_row + r));
    store_number(p.y, p.q_type, p.y_at(b, kv_head, first_row + r) + c, all.result());
  }
}

}  // namespace lamina::ops::cuda
