#pragma once

// Parts of the kernel for a whole attention sublayer of one token (sublayer_step_cuda.cu): shared memory, the role of a
// thread, online softmax over the KV cache, and merging.
#include "lamina/ops/attention/decode/decode_device.cuh"
#include "lamina/ops/attention/decode/step_heads.cuh"
#include "lamina/tensor/cuda/prefetch.cuh"

namespace lamina::ops::cuda {

inline constexpr int kKeysAtOnce = 4;  // keys that a group of lanes processes at once

struct AttentionSublayerParams : StepHeads {
  StepInput in;
  const uint4* qkv;       ///< [(n_heads + 2 n_kv_heads)·d, width]
  const float* qkv_bias;  ///< [(n_heads + 2 n_kv_heads)·d], or null
  int lanes;              ///< lanes per key
  int row_each;           ///< rows of the QKV projection per block
  int out_each;           ///< rows of the output projection per block
  int row_lane_bits, out_lane_bits;

  __host__ __device__ int row_chunks() const { return in.width / 8; }
  __host__ __device__ int heads_width() const { return group * d; }
  __host__ __device__ int rows() const { return heads_width() + 2 * d; }
  /// Floats of shared memory before the weights: the input row, the heads before and after rotation, angles, partial
  /// results of warps and blocks, and the attention output.
  __host__ __device__ int floats() const {
    return in.width + 2 * rows() + 2 * d + kStepWarps * (lanes * kColumns + 2) +
           kStepBlocks * (heads_width() + 2 * group) + heads_width();
  }
  template <class T>
  size_t shared() const {
    return sizeof(float) * static_cast<size_t>((floats() + 3) / 4 * 4) +
           2 * kKeysAtOnce * kStepThreads * sizeof(RawColumns<T>) +
           sizeof(uint4) * static_cast<size_t>(row_each * row_chunks() + out_each * (heads_width() / 8));
  }
};

/// A block's share of the keys of one head.
struct KeySplit {
  int begin, end;

  __device__ KeySplit(int keys, int rank, bool split) {
    const int each = split ? (keys + kStepBlocks - 1) / kStepBlocks : keys;
    if (!split) rank = 0;
    begin = min(rank * each, keys);
    end = min(begin + each, keys);
  }
};

/// Prefetches this block's share of the keys and values to the L2 cache. The cache position is only a hint here: it may
/// be stale.
template <class T>
__device__ inline void prefetch_keys(const AttentionSublayerParams& p, const Cluster& cluster) {
  constexpr int kSector = 32;
  const int64_t given = p.given_place();
  const KeySplit share(static_cast<int>(min(max(given, int64_t{0}), static_cast<int64_t>(p.capacity))), cluster.rank,
                       true);
  const int row_bytes = p.d * static_cast<int>(sizeof(T));
  const int bytes = (share.end - share.begin) * row_bytes;
#pragma unroll 1
  for (int offset = static_cast<int>(threadIdx.x) * kSector; offset < bytes; offset += kStepThreads * kSector) {
    const int key = offset / row_bytes;
    const int64_t at = p.key_index(cluster.id, share.begin + key) * row_bytes + offset - key * row_bytes;
    lamina::cuda::prefetch_l2(static_cast<const char*>(p.k) + at);
    lamina::cuda::prefetch_l2(static_cast<const char*>(p.v) + at);
  }
}

/// The arrays in the block's shared memory.
template <class T>
struct SublayerMemory {
  using Slots = RawColumns<T>[kStepThreads];
  float* row;            ///< [in.width]: the normalized residual stream
  float* found;          ///< [rows]: q of the heads, k, v, before rotation
  float* rotated;        ///< [rows]: the same, rotated
  float* angles;         ///< [2, d]: cosines, signed sines
  float* warp_values;    ///< [warps, lanes · kColumns]: partial results of warps
  float* block_values;   ///< [blocks, width]: partial results of blocks
  float* result;         ///< [width]: the attention output
  float2* warp_stats;    ///< [warps]
  float2* block_stats;   ///< [heads, blocks]
  uint4* staged;         ///< rows of the weight of the QKV projection
  uint4* staged_out;     ///< rows of the weight of the output projection
  Slots *keys, *values;  ///< [kKeysAtOnce]: slots that are private to a thread

  __device__ __forceinline__ SublayerMemory(const AttentionSublayerParams& p, float* shared) {
    const int width = p.heads_width();
    row = shared;
    found = row + p.in.width;
    rotated = found + p.rows();
    angles = rotated + p.rows();
    warp_values = angles + 2 * p.d;
    block_values = warp_values + kStepWarps * p.lanes * kColumns;
    result = block_values + kStepBlocks * width;
    warp_stats = reinterpret_cast<float2*>(result + width);
    block_stats = warp_stats + kStepWarps;
    staged = reinterpret_cast<uint4*>(shared + (p.floats() + 3) / 4 * 4);
    staged_out = staged + p.row_each * p.row_chunks();
    keys = reinterpret_cast<Slots*>(staged_out + p.out_each * (width / 8));
    values = keys + kKeysAtOnce;
  }
};

/// A thread's role in attention: for one head, a lane handles its columns of every `groups`-th key.
struct LaneRole {
  int thread, warp, lane;
  int warps_each;  ///< warps per head
  int head, column;
  int groups, own;  ///< number of lane groups of the head, and the index of this thread's group
  bool inside;      ///< true if the head has this lane's columns

  __device__ __forceinline__ explicit LaneRole(const AttentionSublayerParams& p) {
    thread = static_cast<int>(threadIdx.x);
    warp = thread / kWarp;
    lane = thread % kWarp;
    warps_each = kStepWarps / p.group;
    head = min(warp / warps_each, p.group - 1);
    column = lane % p.lanes * kColumns;
    groups = warps_each * (kWarp / p.lanes);
    own = warp % warps_each * (kWarp / p.lanes) + lane / p.lanes;
    inside = column < p.d;
  }
};

/// Iterates over this thread's elements of [heads, d] without divisions in the loop.
struct HeadElements {
  int d;
  int first_of, first_c;  ///< head and column of the thread's first element
  int hop_of, hop_c;

  __device__ __forceinline__ HeadElements(int d, int thread)
      : d(d), first_of(thread / d), first_c(thread % d), hop_of(kStepThreads / d), hop_c(kStepThreads % d) {}

  /// Calls fn(element, head, column) for each element.
  template <class F>
  __device__ __forceinline__ void each(int count, const F& fn) const {
    int of = first_of;
    int c = first_c;
#pragma unroll 1
    for (int n = static_cast<int>(threadIdx.x); n < count; n += kStepThreads) {
      fn(n, of, c);
      of += hop_of;
      c += hop_c;
      if (c >= d) {
        c -= d;
        ++of;
      }
    }
  }
};

/// Rotates q and k. q goes to memory.rotated; the new key and value go to `new_row` in the cache's format.
template <class T>
__device__ __forceinline__ void rotate_heads(const AttentionSublayerParams& p, const HeadElements& elements,
                                             const SublayerMemory<T>& memory, T* new_row) {
  const int half = p.rotary_dim / 2;
  const int width = p.heads_width();
  elements.each(p.rows(), [&](int n, int of, int c) {
    float x = memory.found[n];
    if (of <= p.group && c < p.rotary_dim) {
      const int partner = p.interleaved ? c ^ 1 : c < half ? c + half : c - half;
      x = fmaf(x, memory.angles[c], memory.found[n - c + partner] * memory.angles[p.d + c]);
    }
    if (of < p.group) {
      memory.rotated[n] = x * p.scale;
    } else {
      new_row[n - width] = from_float<T>(x);
    }
  });
}

/// Starts copying this thread's part of the keys and values from key `first` on to its slots, with cp.async.
template <class T>
__device__ __forceinline__ void fetch_keys(const AttentionSublayerParams& p, const LaneRole& role,
                                           const SublayerMemory<T>& memory, int kv_head, int first, int end,
                                           int place) {
#pragma unroll 1
  for (int n = 0; n < kKeysAtOnce; ++n) {
    const int key = first + n * role.groups + role.own;
    const bool there = role.inside && key < end && key < place;
    const int64_t at = there ? p.key_index(kv_head, key) * p.d + role.column : 0;
#pragma unroll
    for (int w = 0; w < static_cast<int>(sizeof(RawColumns<T>) / 16); ++w) {
      lamina::cuda::cp_async_16(lamina::cuda::shared_address(&memory.keys[n][role.thread]) + w * 16,
                                reinterpret_cast<const uint4*>(static_cast<const T*>(p.k) + at) + w, there);
      lamina::cuda::cp_async_16(lamina::cuda::shared_address(&memory.values[n][role.thread]) + w * 16,
                                reinterpret_cast<const uint4*>(static_cast<const T*>(p.v) + at) + w, there);
    }
  }
  lamina::cuda::cp_async_commit();
}

/// The online softmax of one lane: weighted sums of values, the largest score and the sum of the weights.
struct LaneSums {
  float acc[kColumns] = {};
  float most = kMinusLarge;
  float sum = 0;

  /// Adds the keys in the thread's slots, the first of which is key `first`. The key at `place` is the new one; it and
  /// its value are in `new_row`.
  template <class T>
  __device__ __forceinline__ void add_keys(const AttentionSublayerParams& p, const LaneRole& role,
                                           const SublayerMemory<T>& memory, const float (&q)[kColumns],
                                           const T* new_row, int first, int end, int place) {
    float s[kKeysAtOnce];
#pragma unroll
    for (int n = 0; n < kKeysAtOnce; ++n) {
      const bool is_new = first + n * role.groups + role.own == place && role.inside;
      const T* from = is_new ? new_row + role.column : reinterpret_cast<const T*>(&memory.keys[n][role.thread]);
      float x[kColumns];
      reinterpret_cast<const RawColumns<T>*>(from)->unpack(x);
      s[n] = 0;
#pragma unroll
      for (int c = 0; c < kColumns; ++c) s[n] = fmaf(q[c], x[c], s[n]);
    }
#pragma unroll 1
    for (int step = p.lanes / 2; step > 0; step /= 2) {
#pragma unroll
      for (int n = 0; n < kKeysAtOnce; ++n) s[n] += __shfl_xor_sync(kAllLanes, s[n], step);
    }
    float row_max = most;
#pragma unroll
    for (int n = 0; n < kKeysAtOnce; ++n) {
      s[n] = first + n * role.groups + role.own < end ? s[n] : -INFINITY;
      row_max = fmaxf(row_max, s[n]);
    }
    const float shrink = fast_exp2(most - row_max);
    most = row_max;
    sum *= shrink;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) acc[c] *= shrink;
#pragma unroll
    for (int n = 0; n < kKeysAtOnce; ++n) {
      const float weight = fast_exp2(s[n] - row_max);
      sum += weight;
      const bool is_new = first + n * role.groups + role.own == place && role.inside;
      const T* from = is_new ? new_row + p.d + role.column : reinterpret_cast<const T*>(&memory.values[n][role.thread]);
      float x[kColumns];
      reinterpret_cast<const RawColumns<T>*>(from)->unpack(x);
#pragma unroll
      for (int c = 0; c < kColumns; ++c) acc[c] = fmaf(weight, x[c], acc[c]);
    }
  }

  /// Merges the lane groups of the warp and stores the result in shared memory.
  template <class T>
  __device__ __forceinline__ void store(const AttentionSublayerParams& p, const LaneRole& role,
                                        const SublayerMemory<T>& memory) {
#pragma unroll 1
    for (int step = p.lanes; step < kWarp; step *= 2) {
      const float row_max = fmaxf(most, __shfl_xor_sync(kAllLanes, most, step));
      const float weight = fast_exp2(most - row_max);
      most = row_max;
      sum *= weight;
      sum += __shfl_xor_sync(kAllLanes, sum, step);
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        acc[c] *= weight;
        acc[c] += __shfl_xor_sync(kAllLanes, acc[c], step);
      }
    }
    if (role.lane == 0) memory.warp_stats[role.warp] = {most, sum};
    if (role.lane < p.lanes) {
      auto* to = reinterpret_cast<float4*>(memory.warp_values + role.warp * p.lanes * kColumns + role.column);
      to[0] = {acc[0], acc[1], acc[2], acc[3]};
      to[1] = {acc[4], acc[5], acc[6], acc[7]};
    }
  }
};

/// Merges the results of the warps and then, if each block had a share of the keys (`split`), those of the blocks.
template <class T>
__device__ __forceinline__ void merge_heads(const AttentionSublayerParams& p, const LaneRole& role,
                                            const HeadElements& elements, const SublayerMemory<T>& memory,
                                            const Cluster& cluster, bool split) {
  const int width = p.heads_width();
#pragma unroll 1
  for (int level = 0; level < (split ? 2 : 1); ++level) {
    const int count = level == 0 ? role.warps_each : kStepBlocks;
    const float2* stats = level == 0 ? memory.warp_stats : memory.block_stats;
    const float* all_values = level == 0 ? memory.warp_values : memory.block_values;
    const int stride = level == 0 ? p.lanes * kColumns : width;
    if (level == 1) Cluster::meet();
    elements.each(width, [&](int n, int of, int c) {
      static_assert(kStepWarps == kStepBlocks);
      const float2* stats_of = stats + of * count;
      const float* values_of = level == 0 ? all_values + of * count * stride + c : all_values + n;
      float2 each[kStepWarps];
      float row_max = kMinusLarge;
#pragma unroll
      for (int i = 0; i < kStepWarps; ++i) {
        each[i] = i < count ? stats_of[i] : float2{kMinusLarge, 0.0F};
        row_max = fmaxf(row_max, each[i].x);
      }
      float value = 0;
      float total = 0;
#pragma unroll
      for (int i = 0; i < kStepWarps; ++i) {
        const float weight = fast_exp2(each[i].x - row_max);
        total = fmaf(weight, each[i].y, total);
        if (i < count) value = fmaf(weight, values_of[i * stride], value);
      }
      if (level == 1 || !split) {
        memory.result[n] = total != 0 ? value / total : 0.0F;
        return;
      }
      auto* stats_to = reinterpret_cast<float*>(memory.block_stats + of * kStepBlocks + cluster.rank);
#pragma unroll 1
      for (int block = 0; block < kStepBlocks; ++block) {
        Cluster::put(memory.block_values + cluster.rank * width + n, block, value);
        if (c == 0) {
          Cluster::put(stats_to, block, row_max);
          Cluster::put(stats_to + 1, block, total);
        }
      }
    });
  }
}

}  // namespace lamina::ops::cuda
