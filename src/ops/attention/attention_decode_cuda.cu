// Decoding is bound by reading the cache once. A block has a share of the keys of one row and key head, for up to eight
// of the queries that meet them (all heads of the group and all positions); further queries take blocks of their own,
// which find the keys in the second-level cache. Each group of 8, 16 or 32 lanes holds a slice of eight columns per
// lane of q and of the weighted sum in registers, takes a few keys at a time straight from memory (as many keys and
// values in flight per lane) and keeps a maximum and a sum of its own, so that the loop has neither shared memory nor
// barriers. At the end the groups of a block are put together. Few shares are put together by the block that finishes
// last, so that a short cache costs one launch; many by a second kernel. The grid depends on the capacity alone;
// lengths are read by the kernels, which cut what is in use into equal shares: a captured launch stays right while the
// lengths grow. Scores that are more than scaled have a kernel of their own; widths that are no whole packs, or above
// 256, take a plain one. Caches of 8 bits come as bytes, of more keys at once where registers allow, and every lane of
// a group reads the scales of its keys and values beside them.
#include <cmath>

#include "lamina/ops/attention/attention_decode.h"
#include "lamina/ops/attention/attention_decode_device.cuh"

namespace lamina::ops::cuda {
namespace {

using lamina::cuda::device_data;

constexpr const char* kOp = "attention_decode";
constexpr int kShortShare = 256;
constexpr int kMostShares = 128;
constexpr int kCombineThreads = 256;

/// Counters that are zero between launches, in the device's memory.
class ShareCounters {
 public:
  static constexpr int64_t kCount = 65536;
  explicit ShareCounters(int index) {
    LAMINA_CUDA(cudaSetDevice(index), kOp);
    LAMINA_CUDA(cudaMalloc(reinterpret_cast<void**>(&counters_), kCount * sizeof(int)), kOp);
    LAMINA_CUDA(cudaMemset(counters_, 0, kCount * sizeof(int)), kOp);
  }
  ~ShareCounters() { cudaFree(counters_); }
  ShareCounters(const ShareCounters&) = delete;
  ShareCounters& operator=(const ShareCounters&) = delete;
  int* data() const { return counters_; }

 private:
  int* counters_ = nullptr;
};

/// Blocks that a multiprocessor is to hold: what the registers allow.
template <int kRows, class T>
constexpr int kBlocksOf = kRows == 8                    ? 1
                          : kRows == 1 && sizeof(T) > 1 ? 3
                                                        : 2;
/// Keys that a group of lanes takes at once.
template <int kRows, class T>
constexpr int kKeysOf = sizeof(T) == 1 && kRows <= 2 ? 8 : 4;

/// grid: shares, key heads · blocks of rows, batch. kPlain: one position, whose scores are only scaled, sees all keys.
template <int kRows, bool kPlain, class T>
__global__ __launch_bounds__(kDecodeThreads, kPlain ? kBlocksOf<kRows, T>
                                                    : 1) void decode_kernel(const __grid_constant__ DecodeParams p) {
  constexpr int kKeys = kKeysOf<kRows, T>;
  constexpr bool kScaled = std::is_same_v<T, uint8_t>;
  extern __shared__ float sums[];
  __shared__ float2 stats[kRows][kFewShares];
  __shared__ float totals[kRows];
  lamina::cuda::wait_for_previous();
  const int b = blockIdx.z;
  const int kv_head = static_cast<int>(blockIdx.y) % p.n_kv_heads;
  const int first_row = static_cast<int>(blockIdx.y) / p.n_kv_heads * kRows;
  const int group = static_cast<int>(threadIdx.x) / p.lanes;
  const int groups = kDecodeThreads / p.lanes;
  const int column = static_cast<int>(threadIdx.x) % p.lanes * kColumns;
  float q[kRows][kColumns];
  float acc[kRows][kColumns] = {};
  float most[kRows];
  float sum[kRows] = {};
#pragma unroll
  for (int r = 0; r < kRows; ++r) most[r] = kLowest;
  if (p.q_type == DType::f32) {  // on their way while the lengths are
    load_queries<kRows, float>(p, b, kv_head, first_row, column, q);
  } else if (p.q_type == DType::bf16) {
    load_queries<kRows, __nv_bfloat16>(p, b, kv_head, first_row, column, q);
  } else {
    load_queries<kRows, __half>(p, b, kv_head, first_row, column, q);
  }
  const Shares shares(p, b);
  // Where nobody else writes y, the first share does even without keys.
  const int count = max(shares.count, p.shares == 1 || p.finished != nullptr ? 1 : 0);
  if (static_cast<int>(blockIdx.x) >= count) return;
  const int begin = shares.begin + static_cast<int>(blockIdx.x) * shares.each;
  const int end = min(begin + shares.each, shares.end);
  const DeviceMask& mask = shares.mask;
  const T* k = static_cast<const T*>(p.k) + p.cache_at(b, kv_head, 0, p.d_qk) + column;
  const T* v = static_cast<const T*>(p.v) + p.cache_at(b, kv_head, 0, p.d_v) + column;
  for (int first = begin; first < end; first += groups * kKeys) {  // the same for all threads: lanes are shuffled
    if constexpr (!kPlain) {
      const int last = min(first + groups * kKeys, end);
      if (!mask.ranges_suffice && mask.coverage(0, p.seq_q, first, last) == DeviceMask::Coverage::none) continue;
    }
    const int key = first + group * kKeys;
    const int left = end - key;  // below 1 for groups behind the end
    RawColumns<T> keys[kKeys];
    RawColumns<T> values[kKeys];
#pragma unroll
    for (int n = 0; n < kKeys; ++n) {  // all on their way before the first is used
      keys[n].load(k + static_cast<int64_t>(key + n) * p.d_qk, n < left && column < p.d_qk);
    }
#pragma unroll
    for (int n = 0; n < kKeys; ++n) {
      values[n].load(v + static_cast<int64_t>(key + n) * p.d_v, n < left && column < p.d_v);
    }
    float key_scales[kKeys];
    float value_scales[kKeys];
    if constexpr (kScaled) {
      const int64_t at = p.cache_at(b, kv_head, key, 1);
#pragma unroll
      for (int n = 0; n < kKeys; ++n) {
        key_scales[n] = n < left ? p.k_scales[at + n] : 0.0F;
        value_scales[n] = n < left ? p.v_scales[at + n] : 0.0F;
      }
    }
    float s[kRows][kKeys];
#pragma unroll
    for (int n = 0; n < kKeys; ++n) {
      float x[kColumns];
      keys[n].unpack(x);
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
        if constexpr (kScaled) s[r][n] *= key_scales[n];
        if constexpr (!kPlain) {
          const int row = min(first_row + r, p.rows - 1);
          if (n < left) {
            s[r][n] = decode_score(p, mask, s[r][n], p.head_of(kv_head, row), row % p.seq_q, key + n);
          }
        }
        if constexpr (kPlain) s[r][n] *= p.scale * kLog2E;
        s[r][n] = n < left ? s[r][n] : -INFINITY;
        greatest = fmaxf(greatest, s[r][n]);
      }
      const float shrink = power_of_two(most[r] - greatest);
      sum[r] *= shrink;
#pragma unroll
      for (int n = 0; n < kKeys; ++n) {
        s[r][n] = power_of_two(s[r][n] - greatest);
        sum[r] += s[r][n];
      }
#pragma unroll
      for (int c = 0; c < kColumns; ++c) acc[r][c] *= shrink;
      most[r] = greatest;
    }
#pragma unroll
    for (int n = 0; n < kKeys; ++n) {
      float x[kColumns];
      values[n].unpack(x);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        if constexpr (kScaled) s[r][n] *= value_scales[n];
#pragma unroll
        for (int c = 0; c < kColumns; ++c) acc[r][c] = fmaf(s[r][n], x[c], acc[r][c]);
      }
    }
  }
  finish_share<kRows>(p, b, kv_head, first_row, count, acc, most, sum, sums, stats, totals);
}

/// Any width: a warp per key for the scores, a thread per column for the sums, which lie in the part itself.
template <class T>
__global__ __launch_bounds__(kDecodeThreads) void decode_plain_kernel(const __grid_constant__ DecodeParams p) {
  __shared__ float s[kDecodeThreads];
  __shared__ float scratch[32];
  lamina::cuda::wait_for_previous();
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
  for (int first = begin; first < end; first += kDecodeThreads) {
    const int count = min(kDecodeThreads, end - first);
    for (int n = t / kWarp; n < count; n += kDecodeThreads / kWarp) {
      const T* k = static_cast<const T*>(p.k) + p.cache_at(b, kv_head, first + n, p.d_qk);
      float dot = 0;
      for (int c = t % kWarp; c < p.d_qk; c += kWarp) dot = fmaf(load_as(p.q, p.q_type, q_at + c), cached(k[c]), dot);
      dot = lamina::cuda::warp_sum(dot);
      if (p.k_scales != nullptr) dot *= p.k_scales[p.cache_at(b, kv_head, first + n, 1)];
      if (t % kWarp == 0) s[n] = decode_score(p, shares.mask, dot, head, query, first + n);
    }
    __syncthreads();
    const float own = t < count ? s[t] : -INFINITY;
    const float greatest = fmaxf(most, lamina::cuda::block_max(own, scratch));
    const float weight = power_of_two(own - greatest);
    const float shrink = power_of_two(most - greatest);
    sum = sum * shrink + lamina::cuda::block_sum(weight, scratch);
    most = greatest;
    const bool scaled = p.v_scales != nullptr && t < count;
    s[t] = scaled ? weight * p.v_scales[p.cache_at(b, kv_head, first + t, 1)] : weight;
    __syncthreads();
    for (int c = t; c < p.d_v; c += kDecodeThreads) {
      const T* v = static_cast<const T*>(p.v) + p.cache_at(b, kv_head, first, p.d_v) + c;
      float value = first == begin ? 0.0F : part[c] * shrink;
      for (int n = 0; n < count; ++n) value = fmaf(s[n], cached(v[static_cast<int64_t>(n) * p.d_v]), value);
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
  lamina::cuda::wait_for_previous();
  const int b = blockIdx.y;
  const int kv_head = static_cast<int>(blockIdx.x) % p.n_kv_heads;
  const int row = static_cast<int>(blockIdx.x) / p.n_kv_heads;
  const int count = Shares(p, b).count;
  const int t = threadIdx.x;
  const int64_t first = p.part(b, kv_head, row, 0);
  const float2 own = t < count ? p.part_sums[first + t] : float2{kLowest, 0.0F};
  const float sink = p.sinks == nullptr ? kLowest : p.sinks[p.head_of(kv_head, row)] * kLog2E;
  const float greatest = fmaxf(lamina::cuda::block_max(own.x, scratch), sink);
  const float weight = power_of_two(own.x - greatest);
  if (t < count) weights[t] = weight;
  float sum = lamina::cuda::block_sum(weight * own.y, scratch);  // its barriers also complete `weights`
  if (sink > kLowest) sum += power_of_two(sink - greatest);
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
  p.k_scales = device_data<float>(args.scales.k);
  p.v_scales = device_data<float>(args.scales.v);
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

/// Shares that fill the multiprocessors evenly, each of which holds `blocks_each` blocks at a time: the last round of
/// blocks should be a full one. Every share costs a little to put together.
int shares_of(const DecodeParams& p, int row_blocks, int blocks_each, const Device& device) {
  const double units = static_cast<double>(p.batch) * p.n_kv_heads * row_blocks;
  const double places = static_cast<double>(blocks_each) * lamina::cuda::processors(device);
  const int most = std::clamp((p.capacity + kLeastShare - 1) / kLeastShare, 1, kMostShares);
  int best = 1;
  double best_use = 0;
  const bool few = p.capacity <= kFewShares * kShortShare;  // one launch rather than every multiprocessor in use
  for (int shares = 1; shares <= (few ? std::min(most, kFewShares) : most); ++shares) {
    const double rounds = units * shares / places;
    const double use = rounds / std::ceil(rounds) - 0.002 * shares;
    if (use > best_use) {
      best = shares;
      best_use = use;
    }
  }
  return best;
}

/// The kernel for a number of rows, and how it is launched.
struct DecodeKernel {
  void (*kernel)(DecodeParams);
  int rows;    // of a block
  int blocks;  // of a multiprocessor
  int bytes(int lanes) const { return rows * kDecodeWarps * lanes * kColumns * static_cast<int>(sizeof(float)); }
};

template <class D>
DecodeKernel kernel_for(const DecodeParams& p, bool packs, int processors) {
  const bool plain =
      p.seq_q == 1 && p.mask.ranges_suffice && p.soft_cap == 0 && p.slopes == nullptr && p.t5_bias == nullptr;
  if (!packs) return {decode_plain_kernel<D>, 1, 2};
  if (!plain) return {decode_kernel<4, false, D>, 4, 1};
  if (p.rows == 1) return {decode_kernel<1, true, D>, 1, kBlocksOf<1, D>};
  // Where even the fewest blocks leave multiprocessors idle, fewer rows each: the time is that of one block.
  const int64_t fewest = int64_t{p.batch} * p.n_kv_heads * ((p.rows + 7) / 8) * kFewShares;
  const bool idle = p.capacity <= kFewShares * kShortShare && fewest <= processors;
  if (p.rows == 2 || idle) return {decode_kernel<2, true, D>, 2, kBlocksOf<2, D>};
  if (p.rows <= 4) return {decode_kernel<4, true, D>, 4, kBlocksOf<4, D>};
  return {decode_kernel<8, true, D>, 8, kBlocksOf<8, D>};
}

template <class T>
void decode(const AttentionDecode& args) {
  using D = DeviceType<T>;
  const Device& device = args.q.device();
  DecodeParams p = params_of(args);
  const int widest = std::max(p.d_qk, p.d_v);
  const auto whole = [](const void* cache) { return reinterpret_cast<uintptr_t>(cache) % alignof(RawColumns<D>) == 0; };
  const bool packs = widest <= kWarp * kColumns && p.d_qk % kColumns == 0 && p.d_v % kColumns == 0 && p.d_qk > 0 &&
                     whole(p.k) && whole(p.v) && reinterpret_cast<uintptr_t>(p.q) % 16 == 0;
  const DecodeKernel chosen = kernel_for<D>(p, packs, lamina::cuda::processors(device));
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
  const int64_t counted = int64_t{p.n_kv_heads} * row_blocks * p.batch;
  if (packs && p.shares > 1 && p.shares <= kFewShares && counted <= ShareCounters::kCount) {
    p.finished = lamina::cuda::attached<ShareCounters>(device).data();
  }
  const int bytes = packs ? chosen.bytes(p.lanes) : 0;
  LAMINA_CUDA(cudaFuncSetAttribute(chosen.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), kOp);
  lamina::cuda::launch_dependent(chosen.kernel, grid, dim3(kDecodeThreads), static_cast<size_t>(bytes), device, p);
  lamina::cuda::check_launch(kOp);
  if (!parts.defined() || p.finished != nullptr) return;
  lamina::cuda::launch_dependent(combine_kernel,
                                 dim3(static_cast<unsigned>(p.n_kv_heads * p.rows), static_cast<unsigned>(p.batch)),
                                 dim3(kCombineThreads), 0, device, p);
  lamina::cuda::check_launch(kOp);
}

}  // namespace

void attention_decode(const AttentionDecode& args) {
  if (args.y.numel() == 0) return;
  if (args.k_cache.dtype() == DType::u8) return decode<uint8_t>(args);
  lamina::cuda::visit_floating(kOp, args.k_cache.dtype(),
                               [&](auto tag) { decode<typename decltype(tag)::type>(args); });
}

}  // namespace lamina::ops::cuda
