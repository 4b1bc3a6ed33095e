// Flash decoding on CUDA, limited by reading the KV cache once. A block processes a split of the keys of one batch row
// and KV head, for up to eight of its queries (all heads of the group, all positions). Further queries use blocks of
// their own, which find the keys in the L2 cache. Each group of 8, 16 or 32 lanes holds q and the output in registers,
// eight columns per lane. It loads a few keys and values at a time straight from global memory and runs its own online
// softmax, so the loop needs neither shared memory nor barriers. At the end the groups of a block are merged. A few
// splits form a thread block cluster, whose first block gathers the results in its shared memory, so a short cache
// takes one launch. If there are many splits, a second kernel combines them. The grid depends only on the capacity. The
// kernels read the lengths and split the keys in use evenly, so a captured CUDA graph stays valid while the lengths
// grow. Bias, soft cap and masks use a separate version of the kernel. Widths that are not a multiple of 8, or above
// 256, use a simple kernel. A step (attention_step) adds a prologue that overlaps with the first loads. It rotates the
// queries, and the block with the last split keeps the new key and value in shared memory for the lanes that need them.
#include <cmath>

#include "lamina/ops/attention/decode/decode_cuda.h"
#include "lamina/ops/attention/decode/step_device.cuh"

namespace lamina::ops::cuda {
namespace {

using lamina::cuda::device_data;

constexpr const char* kOp = "attention_decode";
constexpr int kShortSplit = 512;
constexpr int kMaxSplits = 128;
constexpr int kCombineThreads = 256;

/// Minimum resident blocks per SM that the registers allow. A step also holds its first keys in registers.
template <int kRows, bool kPlain, bool kStep, class T>
constexpr int kBlocksOf = !kPlain || kRows == 8 || (kStep && kRows > 1) ? 1
                          : !kStep && kRows == 1 && sizeof(T) > 1       ? 3
                                                                        : 2;
/// Keys that a group of lanes processes per iteration.
template <int kRows, class T>
constexpr int kKeysOf = sizeof(T) == 1 && kRows <= 2 ? 8 : 4;

/// s = q · k, summed over the lanes that share a key; the result is in all of them.
template <int kRows, int kKeys, class T>
__device__ __forceinline__ void dot_keys(const float (&q)[kRows][kColumns], const RawColumns<T> (&keys)[kKeys],
                                         int lanes, float (&s)[kRows][kKeys]) {
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
  for (int step = lanes / 2; step > 0; step /= 2) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int n = 0; n < kKeys; ++n) s[r][n] += __shfl_xor_sync(kAllLanes, s[r][n], step);
    }
  }
}

/// acc += s · v. If the values are 8-bit numbers, s is first multiplied by their scales.
template <int kRows, int kKeys, class T>
__device__ __forceinline__ void add_values(const RawColumns<T> (&values)[kKeys], const float (&scales)[kKeys],
                                           float (&s)[kRows][kKeys], float (&acc)[kRows][kColumns]) {
#pragma unroll
  for (int n = 0; n < kKeys; ++n) {
    float x[kColumns];
    values[n].unpack(x);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if constexpr (std::is_same_v<T, uint8_t>) s[r][n] *= scales[n];
#pragma unroll
      for (int c = 0; c < kColumns; ++c) acc[r][c] = fmaf(s[r][n], x[c], acc[r][c]);
    }
  }
}

/// Grid: splits, KV heads · row blocks, batch. kPlain: one query position that sees all keys, and only scaled scores.
template <int kRows, bool kPlain, bool kStep, class T>
__global__ __launch_bounds__(kDecodeThreads, kBlocksOf<kRows, kPlain, kStep, T>) void decode_kernel(
    const __grid_constant__ DecodeParams p) {
  constexpr int kKeys = kKeysOf<kRows, T>;
  constexpr bool kScaled = std::is_same_v<T, uint8_t>;
  extern __shared__ __align__(16) float sums[];
  __shared__ float2 stats[kRows][kDecodeWarps];
  const int b = blockIdx.z;
  const int kv_head = static_cast<int>(blockIdx.y) % p.n_kv_heads;
  const int first_row = static_cast<int>(blockIdx.y) / p.n_kv_heads * kRows;
  const int group = static_cast<int>(threadIdx.x) / p.lanes;
  const int groups = kDecodeThreads / p.lanes;
  const int column = static_cast<int>(threadIdx.x) % p.lanes * kColumns;
  if (p.clustered) cluster_arrive();
  if (kStep) prefetch_angles(p, b);
  if (kStep && first_row == 0) prefetch_split<T>(p, b, kv_head);
  lamina::cuda::grid_dependency_wait();
  float q[kRows][kColumns];
  float acc[kRows][kColumns] = {};
  float most[kRows];
  float sum[kRows] = {};
#pragma unroll
  for (int r = 0; r < kRows; ++r) most[r] = kMinusLarge;
  load_queries<kRows>(p, b, kv_head, first_row, column, q);  // these loads overlap with reading the lengths
  std::conditional_t<kStep, StepLane<kRows>, NoStep> lane_of(p, b, kv_head, first_row, column);
  const int64_t position = kStep && p.rotary_dim > 0 ? p.positions[b] : 0;
  const KeySplits splits(p, b);
  // If no other block writes y, the first split does, even if it has no keys.
  const int count = max(splits.count, p.splits == 1 || p.clustered ? 1 : 0);
  if (static_cast<int>(blockIdx.x) >= count) return;
  const int begin = splits.begin + static_cast<int>(blockIdx.x) * splits.each;
  const int end = min(begin + splits.each, splits.end);
  const bool owns = kStep && begin < end && end == splits.end;  // this block handles the new token
  const int stored = owns ? end - 1 : end;
  const DeviceMask& mask = splits.mask;
  const T* k = static_cast<const T*>(p.k) + p.cache_at(b, kv_head, 0, p.d_qk) + column;
  const T* v = static_cast<const T*>(p.v) + p.cache_at(b, kv_head, 0, p.d_v) + column;
  RawColumns<T> keys[kKeys];
  RawColumns<T> values[kKeys];
  float key_scales[kKeys];
  float value_scales[kKeys];
  const auto fetch = [&](int key) {  // issues all loads before the first is used
    const int left = stored - key;   // less than 1 for groups past the end
#pragma unroll
    for (int n = 0; n < kKeys; ++n) {
      keys[n].load(k + static_cast<int64_t>(key + n) * p.d_qk, n < left && column < p.d_qk);
    }
#pragma unroll
    for (int n = 0; n < kKeys; ++n) {
      values[n].load(v + static_cast<int64_t>(key + n) * p.d_v, n < left && column < p.d_v);
    }
    if constexpr (kScaled) {
      const int64_t at = p.cache_at(b, kv_head, key, 1);
#pragma unroll
      for (int n = 0; n < kKeys; ++n) {
        key_scales[n] = n < left ? p.k_scales[at + n] : 0.0F;
        value_scales[n] = n < left ? p.v_scales[at + n] : 0.0F;
      }
    }
  };
  __shared__ std::conditional_t<kStep, StepToken<T>, int> token;
  if constexpr (kStep) {
    fetch(begin + group * kKeys);
    begin_step<kRows, T>(p, b, kv_head, first_row, column, position, owns, stored, lane_of, q, token);
  }
  for (int first = begin; first < end; first += groups * kKeys) {  // uniform bounds, because the body shuffles
    if constexpr (!kPlain) {
      const int last = min(first + groups * kKeys, end);
      if (!mask.is_contiguous_range && mask.coverage(0, p.seq_q, first, last) == DeviceMask::Coverage::none) continue;
    }
    const int key = first + group * kKeys;
    const int left = end - key;
    if (!kStep || first > begin) fetch(key);
    if constexpr (kStep) {
      if (owns && left >= 1 && left <= kKeys && column < p.d_qk) {
#pragma unroll
        for (int n = 0; n < kKeys; ++n) {
          if (n != left - 1) continue;
          keys[n] = token.columns[0][column / kColumns];
          values[n] = token.columns[1][column / kColumns];
          if constexpr (kScaled) key_scales[n] = token.scales[0];
          if constexpr (kScaled) value_scales[n] = token.scales[1];
        }
      }
    }
    float s[kRows][kKeys];
    dot_keys(q, keys, p.lanes, s);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      float row_max = most[r];
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
        row_max = fmaxf(row_max, s[r][n]);
      }
      const float shrink = fast_exp2(most[r] - row_max);
      sum[r] *= shrink;
#pragma unroll
      for (int n = 0; n < kKeys; ++n) {
        s[r][n] = fast_exp2(s[r][n] - row_max);
        sum[r] += s[r][n];
      }
#pragma unroll
      for (int c = 0; c < kColumns; ++c) acc[r][c] *= shrink;
      most[r] = row_max;
    }
    add_values(values, value_scales, s, acc);
  }
  merge_split<kRows>(p, b, kv_head, first_row, count, acc, most, sum, sums, stats);
}

/// The kernel for any width: a warp per key for the scores, a thread per column for the sums, which are in `parts`.
template <class T>
__global__ __launch_bounds__(kDecodeThreads) void decode_plain_kernel(const __grid_constant__ DecodeParams p) {
  __shared__ float s[kDecodeThreads];
  __shared__ float scratch[32];
  lamina::cuda::grid_dependency_wait();
  const int b = blockIdx.z;
  const int kv_head = static_cast<int>(blockIdx.y) % p.n_kv_heads;
  const int row = static_cast<int>(blockIdx.y) / p.n_kv_heads;
  const KeySplits splits(p, b);
  if (static_cast<int>(blockIdx.x) >= splits.count) return;
  const int begin = splits.begin + static_cast<int>(blockIdx.x) * splits.each;
  const int end = min(begin + splits.each, splits.end);
  const int64_t q_at = p.q_at(b, kv_head, row);
  const int head = p.head_of(kv_head, row);
  const int query = row % p.seq_q;
  const int t = threadIdx.x;
  const int64_t place = p.part(b, kv_head, row, static_cast<int>(blockIdx.x));
  float* part = p.parts + place * p.d_v;
  float most = kMinusLarge;
  float sum = 0;
  for (int first = begin; first < end; first += kDecodeThreads) {
    const int count = min(kDecodeThreads, end - first);
    for (int n = t / kWarp; n < count; n += kDecodeThreads / kWarp) {
      const T* k = static_cast<const T*>(p.k) + p.cache_at(b, kv_head, first + n, p.d_qk);
      float dot = 0;
      for (int c = t % kWarp; c < p.d_qk; c += kWarp)
        dot = fmaf(load_number(p.q, p.q_type, q_at + c), cached(k[c]), dot);
      dot = lamina::cuda::warp_sum(dot);
      if (p.k_scales != nullptr) dot *= p.k_scales[p.cache_at(b, kv_head, first + n, 1)];
      if (t % kWarp == 0) s[n] = decode_score(p, splits.mask, dot, head, query, first + n);
    }
    __syncthreads();
    const float own = t < count ? s[t] : -INFINITY;
    const float row_max = fmaxf(most, lamina::cuda::block_max(own, scratch));
    const float weight = fast_exp2(own - row_max);
    const float shrink = fast_exp2(most - row_max);
    sum = sum * shrink + lamina::cuda::block_sum(weight, scratch);
    most = row_max;
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

/// Combines the splits in order; one block per query and head. Thread t computes the weight of split t. Then each of
/// `turns` groups of `columns` threads sums every turns-th split, and the first group adds up the groups' sums.
__global__ __launch_bounds__(kCombineThreads) void combine_kernel(const __grid_constant__ DecodeParams p) {
  __shared__ float weights[kMaxSplits];
  __shared__ float found[kCombineThreads];
  __shared__ float scratch[32];
  static_assert(kMaxSplits <= kCombineThreads);
  lamina::cuda::grid_dependency_wait();
  const int b = blockIdx.y;
  const int kv_head = static_cast<int>(blockIdx.x) % p.n_kv_heads;
  const int row = static_cast<int>(blockIdx.x) / p.n_kv_heads;
  const int count = KeySplits(p, b).count;
  const int t = threadIdx.x;
  const int64_t first = p.part(b, kv_head, row, 0);
  const float2 own = t < count ? p.part_sums[first + t] : float2{kMinusLarge, 0.0F};
  const float sink = p.sink_of(kv_head, row);
  const float row_max = fmaxf(lamina::cuda::block_max(own.x, scratch), sink);
  const float weight = fast_exp2(own.x - row_max);
  if (t < count) weights[t] = weight;
  float sum = lamina::cuda::block_sum(weight * own.y, scratch);  // its barriers also make `weights` visible
  if (sink > kMinusLarge) sum += fast_exp2(sink - row_max);
  int columns = kWarp;
  while (columns < p.d_v && columns < kCombineThreads) columns *= 2;
  const int turns = kCombineThreads / columns;
  const int64_t at = p.y_at(b, kv_head, row);
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
      store_number(p.y, p.q_type, at + c, sum != 0 ? value / sum : 0.0F);
    }
    __syncthreads();
  }
}

DecodeParams params_of(const AttentionDecode& args) {
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
  p.q_stride = args.q.strides()[args.q.dim(1) == 1 ? 0 : 1];
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

void add_step(DecodeParams& p, const StepRotation& rotation) {
  p.step = true;
  if (!rotation.cos.defined()) return;
  p.interleaved = rotation.pairing == RotaryPairing::interleaved;
  p.rotary_dim = static_cast<int>(rotation.rotary_dim);
  p.table_row = static_cast<int>(rotation.cos.dim(1));
  p.table_rows = static_cast<int>(std::min(rotation.cos.dim(0), kMostDevicePositions));
  p.cos = rotation.cos.data<float>();
  p.sin = rotation.sin.data<float>();
  p.positions = rotation.positions.data<int64_t>();
}

/// Thread block clusters need sm_90, as does programmatic dependent launch.
bool has_clusters(const Device& device) { return lamina::cuda::has_dependent_launch(device); }

/// Number of splits that best fills the SMs, given `blocks_each` resident blocks per SM: the last wave should be full.
/// Combining a split has a small cost. The splits of a cluster are a power of two.
int splits_for(const DecodeParams& p, int row_blocks, int blocks_each, const Device& device) {
  const double units = static_cast<double>(p.batch) * p.n_kv_heads * row_blocks;
  const double places = static_cast<double>(blocks_each) * lamina::cuda::sm_count(device);
  const int most = std::clamp((p.capacity + kLeastSplit - 1) / kLeastSplit, 1, kMaxSplits);
  int best = 1;
  double best_use = 0;
  // If the cache is short, a single launch is worth more than filling all SMs.
  const bool few = p.capacity <= kMaxClusterSplits * kShortSplit && has_clusters(device);
  const int up_to = few ? std::min(most, kMaxClusterSplits) : most;
  for (int splits = 1; splits <= up_to; splits += splits < kMaxClusterSplits ? splits : 1) {
    const double rounds = units * splits / places;
    const double use = rounds / std::ceil(rounds) - 0.002 * splits;
    if (use > best_use) {
      best = splits;
      best_use = use;
    }
  }
  return best;
}

/// The kernel for a number of rows, and its launch parameters.
struct DecodeKernel {
  void (*kernel)(DecodeParams);
  int rows;    // rows per block
  int blocks;  // resident blocks per SM
  int bytes(const DecodeParams& p) const {
    const int width = p.lanes * kColumns;
    const int gathered = p.clustered ? p.splits * (width + 2) : 0;
    return rows * (kDecodeWarps * width + gathered) * static_cast<int>(sizeof(float));
  }
};

template <int kRows, bool kPlain, bool kStep, class D>
DecodeKernel kernel_of() {
  return {decode_kernel<kRows, kPlain, kStep, D>, kRows, kBlocksOf<kRows, kPlain, kStep, D>};
}

template <class D>
DecodeKernel kernel_for(const DecodeParams& p, bool packs, int sm_count) {
  const bool plain =
      p.seq_q == 1 && p.mask.is_contiguous_range && p.soft_cap == 0 && p.slopes == nullptr && p.t5_bias == nullptr;
  if (!packs) return {decode_plain_kernel<D>, 1, 2};
  if (!plain) return p.step ? kernel_of<4, false, true, D>() : kernel_of<4, false, false, D>();
  if (p.rows == 1) return p.step ? kernel_of<1, true, true, D>() : kernel_of<1, true, false, D>();
  // If even the fewest blocks leave SMs idle, use fewer rows per block, because the total time is that of one block.
  const int64_t fewest = int64_t{p.batch} * p.n_kv_heads * ((p.rows + 7) / 8) * kMaxClusterSplits;
  const bool idle = p.capacity <= kMaxClusterSplits * kShortSplit && fewest <= sm_count;
  if (p.rows == 2 || idle) return p.step ? kernel_of<2, true, true, D>() : kernel_of<2, true, false, D>();
  if (p.step) return kernel_of<4, true, true, D>();
  return p.rows <= 4 ? kernel_of<4, true, false, D>() : kernel_of<8, true, false, D>();
}

template <class T>
bool decode(DecodeForm form, const DecodeCall& call) {
  using D = DeviceType<T>;
  const Device& device = call.args.q.device();
  DecodeParams p = params_of(call.args);
  if (call.step != nullptr) add_step(p, *call.step);
  const int widest = std::max(p.d_qk, p.d_v);
  const auto whole = [](const void* cache) { return reinterpret_cast<uintptr_t>(cache) % alignof(RawColumns<D>) == 0; };
  const bool packs = form != DecodeForm::any_width;
  const bool has_vectors = widest <= kWarp * kColumns && p.d_qk % kColumns == 0 && p.d_v % kColumns == 0 &&
                           p.d_qk > 0 && whole(p.k) && whole(p.v) && reinterpret_cast<uintptr_t>(p.q) % 16 == 0;
  if (packs ? !has_vectors : p.step) return false;
  const DecodeKernel chosen = kernel_for<D>(p, packs, lamina::cuda::sm_count(device));
  const int row_blocks = (p.rows + chosen.rows - 1) / chosen.rows;
  LAMINA_CHECK(static_cast<int64_t>(p.n_kv_heads) * row_blocks < 65536 && p.batch < 65536, kOp, ": batch ", p.batch,
               " and ", p.rows, " queries for each of ", p.n_kv_heads,
               " KV heads exceed the CUDA grid limit; use attention() or a smaller batch");
  for (p.lanes = 8; p.lanes * kColumns < widest;) p.lanes *= 2;
  p.splits = splits_for(p, row_blocks, chosen.blocks, device);
  p.clustered = form == DecodeForm::clusters && p.splits > 1 && p.splits <= kMaxClusterSplits && has_clusters(device);
  if (form == DecodeForm::clusters && !p.clustered) return false;
  Tensor parts;
  if (!packs || (p.splits > 1 && !p.clustered)) {
    const int64_t count = int64_t{p.batch} * p.n_kv_heads * p.rows * p.splits;
    parts = Tensor::empty({count * (p.d_v + 2)}, DType::f32, device);
    p.part_sums = reinterpret_cast<float2*>(parts.data<float>());
    p.parts = parts.data<float>() + 2 * count;
  }
  const dim3 grid(static_cast<unsigned>(p.splits), static_cast<unsigned>(p.n_kv_heads * row_blocks),
                  static_cast<unsigned>(p.batch));
  const int bytes = packs ? chosen.bytes(p) : 0;
  LAMINA_CUDA(cudaFuncSetAttribute(chosen.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), kOp);
  lamina::cuda::launch_dependent_clusters(chosen.kernel, p.clustered ? p.splits : 1, grid, dim3(kDecodeThreads),
                                          static_cast<size_t>(bytes), device, p);
  lamina::cuda::check_launch(kOp);
  if (!parts.defined()) return true;
  lamina::cuda::launch_dependent(combine_kernel,
                                 dim3(static_cast<unsigned>(p.n_kv_heads * p.rows), static_cast<unsigned>(p.batch)),
                                 dim3(kCombineThreads), 0, device, p);
  lamina::cuda::check_launch(kOp);
  return true;
}

}  // namespace

bool decode_in(DecodeForm form, const DecodeCall& call) {
  bool done = false;
  if (call.args.k_cache.dtype() == DType::u8) return decode<uint8_t>(form, call);
  lamina::cuda::visit_floating(kOp, call.args.k_cache.dtype(),
                               [&](auto tag) { done = decode<typename decltype(tag)::type>(form, call); });
  return done;
}

}  // namespace lamina::ops::cuda
