// Decoding is bound by reading the cache once. A block has a share of the keys of one row and key head, for up to eight
// of the queries that meet them (all heads of the group and all positions); further queries take blocks of their own,
// which find the keys in the second-level cache. Each group of 8, 16 or 32 lanes holds a slice of eight columns per
// lane of q and of the weighted sum in registers, takes a few keys at a time straight from memory (as many keys and
// values in flight per lane) and keeps a maximum and a sum of its own, so that the loop has neither shared memory nor
// barriers. At the end the groups of a block are put together, and a second kernel puts the shares together. The grid
// depends on the capacity alone; lengths are read by the kernels, which cut what is in use into equal shares: a
// captured launch stays right while the lengths grow. Scores that are more than scaled have a kernel of their own;
// widths that are no whole packs, or above 256, take a plain one.
#include <type_traits>

#include "lamina/ops/attention/attention_decode.h"
#include "lamina/ops/attention/attention_device.cuh"

namespace lamina::ops::cuda {
namespace {

using lamina::cuda::device_data;
using lamina::cuda::FaultSlot;
using lamina::cuda::kAllLanes;
using lamina::cuda::kWarp;
using lamina::cuda::Pack;

constexpr const char* kOp = "attention_decode";
constexpr int kThreads = 128;
constexpr int kColumns = 8;      // of a lane
constexpr int kLeastShare = 64;  // keys
constexpr int kMostShares = 128;
constexpr int kCombineThreads = 256;

struct DecodeParams {
  int batch;
  int seq_q;
  int capacity;
  int n_heads;
  int n_kv_heads;
  int group;
  int d_qk;
  int d_v;
  int rows;  // queries per key head: group · seq_q, a head's queries side by side
  int shares;
  int lanes;  // that share a key
  DType q_type;
  bool long_lengths;  // i64 rather than i32
  const void* q;
  const void* k;
  const void* v;
  const void* lengths;
  float scale;
  float soft_cap;
  DeviceMask mask;       // of a full cache
  const float* slopes;   // [n_heads], or null
  const float* t5_bias;  // [buckets, n_heads], or null
  int t5_buckets;
  int t5_max_distance;
  const float* sinks;  // [n_heads], or null
  float* parts;        // [batch, n_kv_heads, rows, shares, d_v]: Σ weight · v
  float2* part_sums;   // [batch, n_kv_heads, rows, shares]: greatest score, Σ weight
  void* y;
  FaultSlot* faults;

  __device__ int head_of(int kv_head, int row) const { return kv_head * group + row / seq_q; }
  __device__ int64_t part(int b, int kv_head, int row, int share) const {
    return ((static_cast<int64_t>(b) * n_kv_heads + kv_head) * rows + row) * shares + share;
  }
  /// Element of q, or of y with its width, that a row begins with.
  __device__ int64_t row_at(int b, int kv_head, int row, int width) const {
    return ((static_cast<int64_t>(b) * seq_q + row % seq_q) * n_heads + head_of(kv_head, row)) * width;
  }
  __device__ int64_t cache_at(int b, int kv_head, int key, int width) const {
    return ((static_cast<int64_t>(b) * n_kv_heads + kv_head) * capacity + key) * width;
  }
};

__device__ float load_as(const void* from, DType type, int64_t at) {
  if (type == DType::f32) return static_cast<const float*>(from)[at];
  if (type == DType::bf16) return to_float(static_cast<const __nv_bfloat16*>(from)[at]);
  return to_float(static_cast<const __half*>(from)[at]);
}
__device__ void store_as(void* to, DType type, int64_t at, float value) {
  if (type == DType::f32) {
    static_cast<float*>(to)[at] = value;
  } else if (type == DType::bf16) {
    static_cast<__nv_bfloat16*>(to)[at] = from_float<__nv_bfloat16>(value);
  } else {
    static_cast<__half*>(to)[at] = from_float<__half>(value);
  }
}

/// A row's keys in use and how they are shared out.
struct Shares {
  DeviceMask mask;
  int begin;  // of the keys that any of the queries may see
  int end;
  int each;   // keys of a share
  int count;  // of shares that have keys

  /// A length that cannot be is reported and counts as none.
  __device__ Shares(const DecodeParams& p, int b) : mask(p.mask) {
    const int64_t given =
        p.long_lengths ? static_cast<const int64_t*>(p.lengths)[b] : static_cast<const int32_t*>(p.lengths)[b];
    const bool possible = given == 0 || (given >= p.seq_q && given <= p.capacity);
    if (!possible && threadIdx.x == 0) lamina::cuda::report(p.faults, lamina::cuda::Fault::cache_length, given);
    const int length = possible ? static_cast<int>(given) : 0;
    mask.seq_k = length;
    mask.offset = length - p.seq_q;
    begin = length == 0 ? 0 : max(mask.keys(0).begin, 0);
    end = length == 0 ? 0 : min(mask.keys(p.seq_q - 1).end, length);
    const int keys = max(end - begin, 0);
    each = max((keys + p.shares - 1) / p.shares, 1);
    each = (each + kLeastShare - 1) / kLeastShare * kLeastShare;
    count = (keys + each - 1) / each;
  }
};

/// A score from q·k, −inf where the query may not see the key.
__device__ __noinline__ float decode_score(const DecodeParams& p, const DeviceMask& mask, float dot, int head,
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
  return s;
}

/// Eight numbers side by side.
template <class T>
__device__ void load_columns(const T* from, float (&out)[kColumns]) {
  constexpr int kSize = Pack<T>::kSize;
#pragma unroll
  for (int n = 0; n < kColumns / kSize; ++n) {
    const Pack<T> pack = lamina::cuda::load_pack(from + n * kSize);
#pragma unroll
    for (int i = 0; i < kSize; ++i) out[n * kSize + i] = to_float(pack.values[i]);
  }
}
__device__ void load_columns_as(const void* from, DType type, int64_t at, float (&out)[kColumns]) {
  if (type == DType::f32) {
    load_columns(static_cast<const float*>(from) + at, out);
  } else if (type == DType::bf16) {
    load_columns(static_cast<const __nv_bfloat16*>(from) + at, out);
  } else {
    load_columns(static_cast<const __half*>(from) + at, out);
  }
}

/// kKeys rows of a cache as they lie, so that all are on their way before the first is used.
template <int kKeys, class T>
struct RawKeys {
  static constexpr int kPacks = kColumns / Pack<T>::kSize;
  Pack<T> packs[kKeys][kPacks];

  __device__ void load(const T* from, int64_t stride, int count, bool inside) {
#pragma unroll
    for (int n = 0; n < kKeys; ++n) {
#pragma unroll
      for (int i = 0; i < kPacks; ++i) {
        packs[n][i] = {};
        if (inside && n < count) packs[n][i] = lamina::cuda::load_pack(from + n * stride + i * Pack<T>::kSize);
      }
    }
  }
  __device__ float at(int key, int column) const {
    return to_float(packs[key][column / Pack<T>::kSize].values[column % Pack<T>::kSize]);
  }
};

/// Puts the groups of lanes of a block together; `sums` holds kRows · kThreads · kColumns floats. Leaves a part, or y
/// itself where there is one share only.
template <int kRows>
__device__ void finish_share(const DecodeParams& p, int b, int kv_head, int first_row,
                             const float (&acc)[kRows][kColumns], const float (&most)[kRows], const float (&sum)[kRows],
                             float* sums, float2 (*stats)[kThreads / 8 + 1]) {
  const int group = static_cast<int>(threadIdx.x) / p.lanes;
  const int groups = kThreads / p.lanes;
  const int lane = static_cast<int>(threadIdx.x) % p.lanes;
  const int width = p.lanes * kColumns;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (lane == 0) stats[r][group] = {most[r], sum[r]};
#pragma unroll
    for (int c = 0; c < kColumns; ++c) sums[(r * groups + group) * width + lane * kColumns + c] = acc[r][c];
  }
  __syncthreads();
  const int rows = min(kRows, p.rows - first_row);
  if (static_cast<int>(threadIdx.x) < rows) {  // what each group counts, and the whole
    const int r = threadIdx.x;
    const float sink = p.shares == 1 && p.sinks != nullptr ? p.sinks[p.head_of(kv_head, first_row + r)] : kLowest;
    float greatest = fmaxf(sink, kLowest);
    for (int g = 0; g < groups; ++g) greatest = fmaxf(greatest, stats[r][g].x);
    float total = sink > kLowest ? expf(sink - greatest) : 0.0F;
    for (int g = 0; g < groups; ++g) {
      const float weight = expf(stats[r][g].x - greatest);
      total += weight * stats[r][g].y;
      stats[r][g].x = weight;
    }
    stats[r][groups] = {greatest, total};
    if (p.shares > 1) p.part_sums[p.part(b, kv_head, first_row + r, static_cast<int>(blockIdx.x))] = {greatest, total};
  }
  __syncthreads();
  for (int n = threadIdx.x; n < rows * p.d_v; n += kThreads) {
    const int r = n / p.d_v;
    const int c = n % p.d_v;
    float value = 0;
    for (int g = 0; g < groups; ++g) value = fmaf(stats[r][g].x, sums[(r * groups + g) * width + c], value);
    if (p.shares > 1) {
      p.parts[p.part(b, kv_head, first_row + r, static_cast<int>(blockIdx.x)) * p.d_v + c] = value;
    } else {
      const float total = stats[r][groups].y;
      store_as(p.y, p.q_type, p.row_at(b, kv_head, first_row + r, p.d_v) + c, total != 0 ? value / total : 0.0F);
    }
  }
}

// Keys that a group of lanes takes at once, and blocks that a multiprocessor is to hold: what the registers allow.
template <int kRows>
constexpr int kKeysOf = kRows == 8 ? 2 : 4;
template <int kRows>
constexpr int kBlocksOf = kRows == 1   ? 6
                          : kRows == 2 ? 5
                          : kRows == 4 ? 4
                                       : 3;

/// grid: shares, key heads · blocks of rows, batch. kPlain: one position, whose scores are only scaled, sees all keys.
template <int kRows, bool kPlain, class T>
__global__ __launch_bounds__(kThreads,
                             kPlain ? kBlocksOf<kRows> : 1) void decode_kernel(const __grid_constant__ DecodeParams p) {
  constexpr int kKeys = kKeysOf<kRows>;
  __shared__ float sums[kRows * kThreads * kColumns];
  __shared__ float2 stats[kRows][kThreads / 8 + 1];
  const int b = blockIdx.z;
  const int kv_head = static_cast<int>(blockIdx.y) % p.n_kv_heads;
  const int first_row = static_cast<int>(blockIdx.y) / p.n_kv_heads * kRows;
  const Shares shares(p, b);
  if (static_cast<int>(blockIdx.x) >= max(shares.count, p.shares == 1 ? 1 : 0)) return;
  const int begin = shares.begin + static_cast<int>(blockIdx.x) * shares.each;
  const int end = min(begin + shares.each, shares.end);
  const DeviceMask& mask = shares.mask;
  const int group = static_cast<int>(threadIdx.x) / p.lanes;
  const int groups = kThreads / p.lanes;
  const int column = static_cast<int>(threadIdx.x) % p.lanes * kColumns;
  float q[kRows][kColumns] = {};
  float acc[kRows][kColumns] = {};
  float most[kRows];
  float sum[kRows] = {};
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    most[r] = kLowest;
    if (first_row + r < p.rows && column < p.d_qk) {
      load_columns_as(p.q, p.q_type, p.row_at(b, kv_head, first_row + r, p.d_qk) + column, q[r]);
    }
    if constexpr (kPlain) {
#pragma unroll
      for (int c = 0; c < kColumns; ++c) q[r][c] *= p.scale;
    }
  }
  const T* k = static_cast<const T*>(p.k) + p.cache_at(b, kv_head, 0, p.d_qk) + column;
  const T* v = static_cast<const T*>(p.v) + p.cache_at(b, kv_head, 0, p.d_v) + column;
  for (int first = begin; first < end; first += groups * kKeys) {  // the same for all threads: lanes are shuffled
    if constexpr (!kPlain) {
      const int last = min(first + groups * kKeys, end);
      if (!mask.ranges_suffice && mask.coverage(0, p.seq_q, first, last) == DeviceMask::Coverage::none) continue;
    }
    const int key = first + group * kKeys;
    const int count = end - key;  // below 1 for groups behind the end
    RawKeys<kKeys, T> keys;
    RawKeys<kKeys, T> values;
    keys.load(k + static_cast<int64_t>(key) * p.d_qk, p.d_qk, count, column < p.d_qk);
    values.load(v + static_cast<int64_t>(key) * p.d_v, p.d_v, count, column < p.d_v);
    float s[kRows][kKeys];
#pragma unroll
    for (int n = 0; n < kKeys; ++n) {
      float x[kColumns];
#pragma unroll
      for (int c = 0; c < kColumns; ++c) x[c] = keys.at(n, c);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        float dot = 0;
#pragma unroll
        for (int c = 0; c < kColumns; ++c) dot = fmaf(q[r][c], x[c], dot);
        s[r][n] = dot;
      }
    }
    for (int step = p.lanes / 2; step > 0; step /= 2) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
#pragma unroll
        for (int n = 0; n < kKeys; ++n) s[r][n] += __shfl_xor_sync(kAllLanes, s[r][n], step);
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      float greatest = most[r];
#pragma unroll
      for (int n = 0; n < kKeys; ++n) {
        if constexpr (!kPlain) {
          const int row = min(first_row + r, p.rows - 1);
          if (n < count) {
            s[r][n] = decode_score(p, mask, s[r][n], p.head_of(kv_head, row), row % p.seq_q, key + n);
          }
        }
        s[r][n] = n < count ? s[r][n] : -INFINITY;
        greatest = fmaxf(greatest, s[r][n]);
      }
      const float shrink = expf(most[r] - greatest);
      sum[r] *= shrink;
#pragma unroll
      for (int n = 0; n < kKeys; ++n) {
        s[r][n] = expf(s[r][n] - greatest);
        sum[r] += s[r][n];
      }
#pragma unroll
      for (int c = 0; c < kColumns; ++c) acc[r][c] *= shrink;
      most[r] = greatest;
    }
#pragma unroll
    for (int n = 0; n < kKeys; ++n) {
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        const float x = values.at(n, c);
#pragma unroll
        for (int r = 0; r < kRows; ++r) acc[r][c] = fmaf(s[r][n], x, acc[r][c]);
      }
    }
  }
  finish_share<kRows>(p, b, kv_head, first_row, acc, most, sum, sums, stats);
}

/// Any width: a warp per key for the scores, a thread per column for the sums, which lie in the part itself.
template <class T>
__global__ __launch_bounds__(kThreads) void decode_plain_kernel(const __grid_constant__ DecodeParams p) {
  __shared__ float s[kThreads];
  __shared__ float scratch[32];
  const int b = blockIdx.z;
  const int kv_head = static_cast<int>(blockIdx.y) % p.n_kv_heads;
  const int row = static_cast<int>(blockIdx.y) / p.n_kv_heads;
  const Shares shares(p, b);
  if (static_cast<int>(blockIdx.x) >= shares.count) return;
  const int begin = shares.begin + static_cast<int>(blockIdx.x) * shares.each;
  const int end = min(begin + shares.each, shares.end);
  const int64_t q_at = p.row_at(b, kv_head, row, p.d_qk);
  const int head = p.head_of(kv_head, row);
  const int query = row % p.seq_q;
  const int t = threadIdx.x;
  const int64_t place = p.part(b, kv_head, row, static_cast<int>(blockIdx.x));
  float* part = p.parts + place * p.d_v;
  float most = kLowest;
  float sum = 0;
  for (int first = begin; first < end; first += kThreads) {
    const int count = min(kThreads, end - first);
    for (int n = t / kWarp; n < count; n += kThreads / kWarp) {
      const T* k = static_cast<const T*>(p.k) + p.cache_at(b, kv_head, first + n, p.d_qk);
      float dot = 0;
      for (int c = t % kWarp; c < p.d_qk; c += kWarp) dot = fmaf(load_as(p.q, p.q_type, q_at + c), to_float(k[c]), dot);
      dot = lamina::cuda::warp_sum(dot);
      if (t % kWarp == 0) s[n] = decode_score(p, shares.mask, dot, head, query, first + n);
    }
    __syncthreads();
    const float own = t < count ? s[t] : -INFINITY;
    const float greatest = fmaxf(most, lamina::cuda::block_max(own, scratch));
    const float weight = expf(own - greatest);
    const float shrink = expf(most - greatest);
    sum = sum * shrink + lamina::cuda::block_sum(weight, scratch);
    most = greatest;
    s[t] = weight;
    __syncthreads();
    for (int c = t; c < p.d_v; c += kThreads) {
      const T* v = static_cast<const T*>(p.v) + p.cache_at(b, kv_head, first, p.d_v) + c;
      float value = first == begin ? 0.0F : part[c] * shrink;
      for (int n = 0; n < count; ++n) value = fmaf(s[n], to_float(v[static_cast<int64_t>(n) * p.d_v]), value);
      part[c] = value;
    }
    __syncthreads();
  }
  if (t == 0) p.part_sums[place] = {most, sum};
}

/// Puts the shares together in their order, a block per query and head. Each share's part is one thread's to weigh;
/// then `columns` threads side by side add up every so many-th part, and the first of them what these found.
__global__ __launch_bounds__(kCombineThreads) void combine_kernel(const __grid_constant__ DecodeParams p) {
  __shared__ float weights[kMostShares];
  __shared__ float found[kCombineThreads];
  __shared__ float scratch[32];
  static_assert(kMostShares <= kCombineThreads);
  const int b = blockIdx.y;
  const int kv_head = static_cast<int>(blockIdx.x) % p.n_kv_heads;
  const int row = static_cast<int>(blockIdx.x) / p.n_kv_heads;
  const int count = Shares(p, b).count;
  const int t = threadIdx.x;
  const int64_t first = p.part(b, kv_head, row, 0);
  const float2 own = t < count ? p.part_sums[first + t] : float2{kLowest, 0.0F};
  const float sink = p.sinks == nullptr ? kLowest : p.sinks[p.head_of(kv_head, row)];
  const float greatest = fmaxf(lamina::cuda::block_max(own.x, scratch), sink);
  const float weight = expf(own.x - greatest);
  if (t < count) weights[t] = weight;
  float sum = lamina::cuda::block_sum(weight * own.y, scratch);  // its barriers also complete `weights`
  if (sink > kLowest) sum += expf(sink - greatest);
  int columns = kWarp;
  while (columns < p.d_v && columns < kCombineThreads) columns *= 2;
  const int turns = kCombineThreads / columns;
  const int64_t at = p.row_at(b, kv_head, row, p.d_v);
  for (int c0 = 0; c0 < p.d_v; c0 += columns) {
    const int c = c0 + t % columns;
    float value = 0;
    if (c < p.d_v) {
#pragma unroll 8
      for (int n = t / columns; n < count; n += turns)
        value = fmaf(weights[n], p.parts[(first + n) * p.d_v + c], value);
    }
    found[t] = value;
    __syncthreads();
    if (t < columns && c < p.d_v) {
      for (int n = 1; n < turns; ++n) value += found[n * columns + t];
      store_as(p.y, p.q_type, at + c, sum != 0 ? value / sum : 0.0F);
    }
    __syncthreads();
  }
}

DecodeParams params_of(const AttentionDecode& args) {
  const auto narrow = [](int64_t value) { return static_cast<int>(std::min(value, kMostDevicePositions)); };
  DecodeParams p{};
  p.batch = narrow(args.q.dim(0));
  p.seq_q = narrow(args.q.dim(1));
  p.capacity = narrow(args.k_cache.dim(2));
  p.n_heads = narrow(args.q.dim(2));
  p.n_kv_heads = narrow(args.k_cache.dim(1));
  p.group = p.n_heads / p.n_kv_heads;
  p.d_qk = narrow(args.q.dim(3));
  p.d_v = narrow(args.v_cache.dim(3));
  p.rows = p.group * p.seq_q;
  p.q_type = args.q.dtype();
  p.long_lengths = args.lengths.dtype() == DType::i64;
  p.q = args.q.raw();
  p.k = args.k_cache.raw();
  p.v = args.v_cache.raw();
  p.lengths = args.lengths.raw();
  p.scale = static_cast<float>(args.options.scale);
  p.soft_cap = static_cast<float>(args.options.soft_cap);
  p.mask = device_mask(args.options, args.q.dim(1), args.k_cache.dim(2));
  p.slopes = device_data<float>(args.extras.alibi_slopes);
  p.t5_bias = device_data<float>(args.extras.t5_bias);
  p.t5_buckets = p.t5_bias == nullptr ? 0 : narrow(args.extras.t5_bias.dim(0));
  p.t5_max_distance = narrow(args.options.t5_max_distance);
  p.sinks = device_data<float>(args.extras.sinks);
  p.y = args.y.raw();
  p.faults = lamina::cuda::fault_slot(args.q.device());
  return p;
}

/// Enough blocks for every multiprocessor to hold as many as it can, in shares that are worth a block.
int shares_of(const DecodeParams& p, int row_blocks, int blocks_each, const Device& device) {
  const int64_t units = static_cast<int64_t>(p.batch) * p.n_kv_heads * row_blocks;
  const int64_t wanted = (blocks_each * lamina::cuda::processors(device) + units - 1) / units;
  const int64_t most = std::max<int64_t>((p.capacity + kLeastShare - 1) / kLeastShare, 1);
  return static_cast<int>(std::clamp<int64_t>(wanted, 1, std::min<int64_t>(most, kMostShares)));
}

/// The kernel for a number of rows, and how it is launched.
struct DecodeKernel {
  void (*kernel)(DecodeParams);
  int rows;    // of a block
  int blocks;  // of a multiprocessor
};

template <class D>
DecodeKernel kernel_for(const DecodeParams& p, bool packs) {
  const bool plain =
      p.seq_q == 1 && p.mask.ranges_suffice && p.soft_cap == 0 && p.slopes == nullptr && p.t5_bias == nullptr;
  if (!packs) return {decode_plain_kernel<D>, 1, 4};
  if (!plain) return {decode_kernel<4, false, D>, 4, 2};
  if (p.rows == 1) return {decode_kernel<1, true, D>, 1, kBlocksOf<1>};
  if (p.rows == 2) return {decode_kernel<2, true, D>, 2, kBlocksOf<2>};
  if (p.rows <= 4) return {decode_kernel<4, true, D>, 4, kBlocksOf<4>};
  return {decode_kernel<8, true, D>, 8, kBlocksOf<8>};
}

template <class T>
void decode(const AttentionDecode& args) {
  using D = DeviceType<T>;
  const Device& device = args.q.device();
  cudaStream_t stream = lamina::cuda::stream_of(device);
  DecodeParams p = params_of(args);
  const int widest = std::max(p.d_qk, p.d_v);
  const bool packs = widest <= kWarp * kColumns && p.d_qk % kColumns == 0 && p.d_v % kColumns == 0 && p.d_qk > 0 &&
                     lamina::cuda::fits_packs(static_cast<const D*>(p.k), p.d_qk) &&
                     lamina::cuda::fits_packs(static_cast<const D*>(p.v), p.d_v) &&
                     reinterpret_cast<uintptr_t>(p.q) % 16 == 0;
  const DecodeKernel chosen = kernel_for<D>(p, packs);
  const int row_blocks = (p.rows + chosen.rows - 1) / chosen.rows;
  LAMINA_CHECK(static_cast<int64_t>(p.n_kv_heads) * row_blocks < 65536 && p.batch < 65536, kOp, ": batch ", p.batch,
               " and ", p.rows, " queries for each of ", p.n_kv_heads,
               " key heads are more blocks than one launch takes; use attention() or a smaller batch");
  for (p.lanes = 8; p.lanes * kColumns < widest;) p.lanes *= 2;
  p.shares = shares_of(p, row_blocks, chosen.blocks, device);
  Tensor parts;
  if (!packs || p.shares > 1) {
    const int64_t count = int64_t{p.batch} * p.n_kv_heads * p.rows * p.shares;
    parts = Tensor::empty({count * (p.d_v + 2)}, DType::f32, device);
    p.part_sums = reinterpret_cast<float2*>(parts.data<float>());
    p.parts = parts.data<float>() + 2 * count;
  }
  const dim3 grid(static_cast<unsigned>(p.shares), static_cast<unsigned>(p.n_kv_heads * row_blocks),
                  static_cast<unsigned>(p.batch));
  chosen.kernel<<<grid, kThreads, 0, stream>>>(p);
  lamina::cuda::check_launch(kOp);
  if (!parts.defined()) return;
  combine_kernel<<<dim3(static_cast<unsigned>(p.n_kv_heads * p.rows), static_cast<unsigned>(p.batch)), kCombineThreads,
                   0, stream>>>(p);
  lamina::cuda::check_launch(kOp);
}

}  // namespace

void attention_decode(const AttentionDecode& args) {
  if (args.y.numel() == 0) return;
  lamina::cuda::visit_floating(kOp, args.k_cache.dtype(),
                               [&](auto tag) { decode<typename decltype(tag)::type>(args); });
}

}  // namespace lamina::ops::cuda
