// Decoding is bound by reading the cache once. A block has a share of the keys of one row and key head, for up to eight
// of the queries that meet them (all heads of the group and all positions); further queries take blocks of their own,
// which find the keys in the second-level cache. Each group of 8, 16 or 32 lanes holds a slice of eight columns per
// lane of q and of the weighted sum in registers, takes four keys at a time straight from memory (four keys and four
// values in flight per lane) and keeps a maximum and a sum of its own, so that the loop has neither shared memory nor
// barriers. At the end the groups of a block are put together, and a second kernel puts the shares together. The grid
// depends on the capacity alone; lengths are read by the kernels, which cut what is in use into equal shares: a
// captured launch stays right while the lengths grow. Widths that are no whole packs, or above 256, take a plain
// kernel.
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
constexpr int kKeys = 4;         // that a group of lanes takes at once
constexpr int kLeastShare = 64;  // keys
constexpr int kMostShares = 128;

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
  float* parts;        // [batch, n_kv_heads, shares, rows, d_v + 2]: Σ weight · v, greatest score, Σ weight
  void* y;
  FaultSlot* faults;

  __device__ int head_of(int kv_head, int row) const { return kv_head * group + row / seq_q; }
  __device__ float* part(int b, int kv_head, int share, int row) const {
    const int64_t unit = (static_cast<int64_t>(b) * n_kv_heads + kv_head) * shares + share;
    return parts + (unit * rows + row) * (d_v + 2);
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

template <class T>
__device__ void load_columns(const T* from, bool inside, float out[kColumns]) {
  constexpr int kSize = Pack<T>::kSize;
#pragma unroll
  for (int n = 0; n < kColumns / kSize; ++n) {
    Pack<T> pack{};
    if (inside) pack = lamina::cuda::load_pack(from + n * kSize);
#pragma unroll
    for (int i = 0; i < kSize; ++i) out[n * kSize + i] = to_float(pack.values[i]);
  }
}

/// kKeys rows of a cache as they lie, so that all are on their way before the first is used.
template <class T>
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
__device__ void finish_share(const DecodeParams& p, int b, int kv_head, int first_row, const float (*acc)[kColumns],
                             const float* most, const float* sum, float* sums, float (*stats)[kRows][2]) {
  const int group = static_cast<int>(threadIdx.x) / p.lanes;
  const int groups = kThreads / p.lanes;
  const int lane = static_cast<int>(threadIdx.x) % p.lanes;
  const int width = p.lanes * kColumns;
  if (lane == 0) {
    for (int r = 0; r < kRows; ++r) {
      stats[group][r][0] = most[r];
      stats[group][r][1] = sum[r];
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) sums[(r * groups + group) * width + lane * kColumns + c] = acc[r][c];
  }
  __syncthreads();
  const int rows = min(kRows, p.rows - first_row);
  for (int n = threadIdx.x; n < rows * p.d_v; n += kThreads) {
    const int r = n / p.d_v;
    const int c = n % p.d_v;
    float greatest = kLowest;
    for (int g = 0; g < groups; ++g) greatest = fmaxf(greatest, stats[g][r][0]);
    const float sink = p.shares == 1 && p.sinks != nullptr ? p.sinks[p.head_of(kv_head, first_row + r)] : kLowest;
    greatest = fmaxf(greatest, sink);
    float total = sink > kLowest ? expf(sink - greatest) : 0.0F;
    float value = 0;
    for (int g = 0; g < groups; ++g) {
      const float weight = expf(stats[g][r][0] - greatest);
      total += weight * stats[g][r][1];
      value += weight * sums[(r * groups + g) * width + c];
    }
    if (p.shares == 1) {
      store_as(p.y, p.q_type, p.row_at(b, kv_head, first_row + r, p.d_v) + c, total != 0 ? value / total : 0.0F);
      continue;
    }
    float* part = p.part(b, kv_head, static_cast<int>(blockIdx.x), first_row + r);
    part[c] = value;
    if (c == 0) {
      part[p.d_v] = greatest;
      part[p.d_v + 1] = total;
    }
  }
}

/// grid: shares, key heads · blocks of rows, batch
template <int kRows, class T>
__global__ __launch_bounds__(kThreads) void decode_kernel(const __grid_constant__ DecodeParams p) {
  __shared__ float sums[kRows * kThreads * kColumns];
  __shared__ float stats[kThreads / 8][kRows][2];
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
  const bool holes = !mask.ranges_suffice;
  const bool plain = p.seq_q == 1 && !holes && p.soft_cap == 0 && p.slopes == nullptr && p.t5_bias == nullptr;
  float q[kRows][kColumns];
  float acc[kRows][kColumns] = {};
  float most[kRows];
  float sum[kRows] = {};
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    most[r] = kLowest;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const bool inside = first_row + r < p.rows && column + c < p.d_qk;
      q[r][c] = inside ? load_as(p.q, p.q_type, p.row_at(b, kv_head, first_row + r, p.d_qk) + column + c) : 0.0F;
    }
  }
  const T* k = static_cast<const T*>(p.k) + p.cache_at(b, kv_head, 0, p.d_qk) + column;
  const T* v = static_cast<const T*>(p.v) + p.cache_at(b, kv_head, 0, p.d_v) + column;
  for (int first = begin; first < end; first += groups * kKeys) {  // the same for all threads: lanes are shuffled
    const int span = min(groups * kKeys, end - first);
    if (holes && mask.coverage(0, p.seq_q, first, first + span) == DeviceMask::Coverage::none) continue;
    const int key = first + group * kKeys;
    const int count = min(kKeys, end - key);
    RawKeys<T> keys;
    RawKeys<T> values;
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
        if (n >= count) {
          s[r][n] = -INFINITY;
        } else if (plain) {
          s[r][n] *= p.scale;
        } else {
          const int row = min(first_row + r, p.rows - 1);
          s[r][n] = decode_score(p, mask, s[r][n], p.head_of(kv_head, row), row % p.seq_q, key + n);
        }
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
  float* part = p.part(b, kv_head, static_cast<int>(blockIdx.x), row);
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
  if (t == 0) {
    part[p.d_v] = most;
    part[p.d_v + 1] = sum;
  }
}

/// Puts the shares together in their order, a block per query and head.
__global__ __launch_bounds__(kThreads) void combine_kernel(const __grid_constant__ DecodeParams p) {
  const int b = blockIdx.y;
  const int kv_head = static_cast<int>(blockIdx.x) % p.n_kv_heads;
  const int row = static_cast<int>(blockIdx.x) / p.n_kv_heads;
  const int count = Shares(p, b).count;
  const float sink = p.sinks == nullptr ? kLowest : p.sinks[p.head_of(kv_head, row)];
  float greatest = fmaxf(sink, kLowest);
  for (int n = 0; n < count; ++n) greatest = fmaxf(greatest, p.part(b, kv_head, n, row)[p.d_v]);
  float sum = sink > kLowest ? expf(sink - greatest) : 0.0F;
  for (int n = 0; n < count; ++n) {
    const float* part = p.part(b, kv_head, n, row);
    sum += expf(part[p.d_v] - greatest) * part[p.d_v + 1];
  }
  const int64_t at = p.row_at(b, kv_head, row, p.d_v);
  for (int c = threadIdx.x; c < p.d_v; c += kThreads) {
    float value = 0;
#pragma unroll 4
    for (int n = 0; n < count; ++n) {
      const float* part = p.part(b, kv_head, n, row);
      value = fmaf(expf(part[p.d_v] - greatest), part[c], value);
    }
    store_as(p.y, p.q_type, at + c, sum != 0 ? value / sum : 0.0F);
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

/// Two blocks per multiprocessor, in shares that are worth a block.
int shares_of(const DecodeParams& p, int row_blocks, const Device& device) {
  const int64_t units = static_cast<int64_t>(p.batch) * p.n_kv_heads * row_blocks;
  const int64_t wanted = (2 * lamina::cuda::processors(device) + units - 1) / units;
  const int64_t most = std::max<int64_t>((p.capacity + kLeastShare - 1) / kLeastShare, 1);
  return static_cast<int>(std::clamp<int64_t>(wanted, 1, std::min<int64_t>(most, kMostShares)));
}

template <int kRows, class T>
void launch_rows(const DecodeParams& p, int row_blocks, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(p.shares), static_cast<unsigned>(p.n_kv_heads * row_blocks),
                  static_cast<unsigned>(p.batch));
  decode_kernel<kRows, T><<<grid, kThreads, 0, stream>>>(p);
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
                     lamina::cuda::fits_packs(static_cast<const D*>(p.v), p.d_v);
  const int rows_at_once = !packs || p.rows == 1 ? 1 : p.rows == 2 ? 2 : p.rows <= 4 ? 4 : 8;
  const int row_blocks = (p.rows + rows_at_once - 1) / rows_at_once;
  LAMINA_CHECK(static_cast<int64_t>(p.n_kv_heads) * row_blocks < 65536 && p.batch < 65536, kOp, ": batch ", p.batch,
               " and ", p.rows, " queries for each of ", p.n_kv_heads,
               " key heads are more blocks than one launch takes; use attention() or a smaller batch");
  for (p.lanes = 8; p.lanes * kColumns < widest;) p.lanes *= 2;
  p.shares = shares_of(p, row_blocks, device);
  Tensor parts;
  if (!packs || p.shares > 1) {
    parts = Tensor::empty({int64_t{p.batch} * p.n_kv_heads * p.shares * p.rows, p.d_v + 2}, DType::f32, device);
    p.parts = parts.data<float>();
  }
  if (!packs) {
    const dim3 grid(static_cast<unsigned>(p.shares), static_cast<unsigned>(p.n_kv_heads * p.rows),
                    static_cast<unsigned>(p.batch));
    decode_plain_kernel<D><<<grid, kThreads, 0, stream>>>(p);
  } else {
    switch (rows_at_once) {
      case 1: launch_rows<1, D>(p, row_blocks, stream); break;
      case 2: launch_rows<2, D>(p, row_blocks, stream); break;
      case 4: launch_rows<4, D>(p, row_blocks, stream); break;
      default: launch_rows<8, D>(p, row_blocks, stream); break;
    }
  }
  lamina::cuda::check_launch(kOp);
  if (parts.defined()) {
    combine_kernel<<<dim3(static_cast<unsigned>(p.n_kv_heads * p.rows), static_cast<unsigned>(p.batch)), kThreads, 0,
                     stream>>>(p);
    lamina::cuda::check_launch(kOp);
  }
}

}  // namespace

void attention_decode(const AttentionDecode& args) {
  if (args.y.numel() == 0) return;
  lamina::cuda::visit_floating(kOp, args.k_cache.dtype(),
                               [&](auto tag) { decode<typename decltype(tag)::type>(args); });
}

}  // namespace lamina::ops::cuda
