// The whole attention sublayer of one token in one launch. A cluster of eight blocks owns a KV head with its queries.
// Each block has some rows of their projections and some rows of the output projection, restricted to that head's
// columns. It prefetches these weights to shared memory before it waits for the previous kernel. Then every block
// normalises the residual stream itself and multiplies its rows; q, k and v are broadcast within the cluster, and each
// block rotates them. With few keys every block attends to all of them, which is cheaper than an exchange; with many,
// each has a share, and the results are exchanged once more. The head's output times the block's rows is a partial
// output of the sublayer; the consumer sums the parts in order.
#include "lamina/ops/attention/decode/decode_device.cuh"
#include "lamina/ops/attention/decode/step_heads.cuh"
#include "lamina/tensor/cuda/prefetch.cuh"

namespace lamina::ops::cuda {
namespace {

using lamina::cuda::device_data;

constexpr int kKeysAtOnce = 4;  // per group of lanes

struct AttentionSublayerParams : StepHeads {
  StepInput in;
  const uint4* qkv;       ///< [(n_heads + 2 n_kv_heads)·d, width]
  const float* qkv_bias;  ///< or null
  int lanes;              ///< per key
  int row_each;           ///< rows of q, k and v per block
  int out_each;           ///< rows of the output projection per block
  int row_lane_bits, out_lane_bits;

  __host__ __device__ int row_chunks() const { return in.width / 8; }
  __host__ __device__ int heads_width() const { return group * d; }
  __host__ __device__ int rows() const { return heads_width() + 2 * d; }
  /// Floats of shared memory before the weights: the input row, the heads before and after rotation, angles, partial
  /// results of warps and blocks, the result.
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

/// Prefetches this block's share of the keys and values to the L2 cache. The cache position is a hint here: it may be
/// stale.
template <class T>
__device__ void prefetch_keys(const AttentionSublayerParams& p, const Cluster& cluster) {
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

template <class T>
__global__ void __launch_bounds__(kStepThreads, 2)
    attention_sublayer_kernel(const __grid_constant__ AttentionSublayerParams p) {
  extern __shared__ __align__(16) float shared_floats[];
  __shared__ float scratch[32];
  __shared__ ClusterMailbox arrivals;
  const Cluster cluster;
  if (threadIdx.x == 0) arrivals.expect(p.rows());
  __syncwarp();
  Cluster::arrive();
  const int d = p.d;
  const int width = p.heads_width();
  const int lanes_width = p.lanes * kColumns;
  float* row = shared_floats;                                    // [in.width]
  float* found = row + p.in.width;                               // [rows]: q of the heads, k, v
  float* turned = found + p.rows();                              // [rows]: the same, rotated
  float* angles = turned + p.rows();                             // [2, d]: cosines, signed sines
  float* warp_values = angles + 2 * d;                           // [warps, lanes_width]
  float* block_values = warp_values + kStepWarps * lanes_width;  // [blocks, width]
  float* result = block_values + kStepBlocks * width;            // [width]
  auto* warp_stats = reinterpret_cast<float2*>(result + width);  // [warps]
  auto* block_stats = warp_stats + kStepWarps;                   // [heads, blocks]
  auto* staged = reinterpret_cast<uint4*>(shared_floats + (p.floats() + 3) / 4 * 4);
  uint4* staged_out = staged + p.row_each * p.row_chunks();

  const int mine = cluster.rank * p.row_each;
  const RowProduct<1> project{min(p.row_each, p.rows() - mine), p.row_chunks(), p.row_lane_bits};
  const auto global_row = [&](int n) {  // of q, k and v
    const int local = mine + n;
    if (local < width) return cluster.id * width + local;
    const int part = local < width + d ? 0 : 1;
    return (p.n_heads + part * p.n_kv_heads + cluster.id) * d + local - width - part * d;
  };
  if (p.in.weights_just_written) lamina::cuda::grid_dependency_wait();
  project.stage(staged,
                [&](int n, int /*tile*/) { return p.qkv + static_cast<int64_t>(global_row(n)) * p.row_chunks(); });
  lamina::cuda::cp_async_commit();
  const int out = cluster.rank * p.out_each;
  const RowProduct<1> merge{min(p.out_each, p.in.width - out), width / 8, p.out_lane_bits};
  merge.stage(staged_out, [&](int n, int /*tile*/) {
    return p.out + (static_cast<int64_t>(out + n) * p.n_heads * d + cluster.id * width) / 8;
  });
  lamina::cuda::cp_async_commit();
  // A lane handles its columns of every `groups`-th key, for one head.
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kWarp;
  const int lane = thread % kWarp;
  const int warps_each = kStepWarps / p.group;
  const int head = min(warp / warps_each, p.group - 1);
  const int column = lane % p.lanes * kColumns;
  const int groups = warps_each * (kWarp / p.lanes);
  const int own = warp % warps_each * (kWarp / p.lanes) + lane / p.lanes;
  const bool inside = column < d;
  T* k = static_cast<T*>(p.k);
  T* v = static_cast<T*>(p.v);
  using Slots = RawColumns<T>[kStepThreads];
  auto* keys = reinterpret_cast<Slots*>(staged_out + p.out_each * (width / 8));  // [kKeysAtOnce], private per thread
  Slots* values = keys + kKeysAtOnce;
  const int first_of = thread / d;  // head and column of the first element of this thread
  const int first_c = thread % d;
  const int hop_of = kStepThreads / d;
  const int hop_c = kStepThreads % d;
  const auto each_number = [&](int count, const auto& fn) {  // fn(element, head, column)
    int of = first_of;
    int c = first_c;
#pragma unroll 1
    for (int n = thread; n < count; n += kStepThreads) {
      fn(n, of, c);
      of += hop_of;
      c += hop_c;
      if (c >= d) {
        c -= d;
        ++of;
      }
    }
  };
  const int half = p.rotary_dim / 2;
  const bool second = p.interleaved ? thread % 2 != 0 : thread >= half;
  int angle = thread;
  if (p.table_row < p.rotary_dim) angle = p.interleaved ? thread / 2 : second ? thread - half : thread;
  float* part = p.parts + cluster.id * p.in.width + out;
  prefetch_keys<T>(p, cluster);
  Cluster::wait();
  lamina::cuda::grid_dependency_wait();
  const int64_t given = p.given_place();
  const int64_t position = p.given_position();
  int place = 0;
  bool split = false;
  KeySplit share(0, 0, false);
  float cosine = 1;
  float sine = 0;
  const auto fetch = [&](int first) {
#pragma unroll 1
    for (int n = 0; n < kKeysAtOnce; ++n) {
      const int key = first + n * groups + own;
      const bool there = inside && key < share.end && key < place;
      const int64_t at = there ? p.key_index(cluster.id, key) * d + column : 0;
#pragma unroll
      for (int w = 0; w < static_cast<int>(sizeof(RawColumns<T>) / 16); ++w) {
        lamina::cuda::cp_async_16(lamina::cuda::shared_address(&keys[n][thread]) + w * 16,
                                  reinterpret_cast<const uint4*>(k + at) + w, there);
        lamina::cuda::cp_async_16(lamina::cuda::shared_address(&values[n][thread]) + w * 16,
                                  reinterpret_cast<const uint4*>(v + at) + w, there);
      }
    }
    lamina::cuda::cp_async_commit();
  };
  const float r = load_normalized_row(p.in, row, scratch, [&] {
    const bool possible = given >= 0 && given < p.capacity;
    if (!possible && thread == 0) {
      lamina::cuda::report(p.faults, lamina::cuda::Fault::cache_place, given);
    }
    place = possible ? static_cast<int>(given) : -1;
    const int few = 2 * groups * kKeysAtOnce;  // every block attends to all keys up to this many
    split = place >= few;
    share = KeySplit(min(place + 1, split ? p.capacity : few), cluster.rank, split);
    fetch(share.begin);
    if (thread < p.rotary_dim) {
      const bool known = position >= 0 && position < p.table_rows;
      if (!known) lamina::cuda::report(p.faults, lamina::cuda::Fault::position, position);
      const int64_t at = (known ? position * p.table_row : 0) + angle;
      cosine = __ldg(p.cos + at);
      sine = __ldg(p.sin + at);
    }
  });
  lamina::cuda::cp_async_wait<2>();
  project.multiply(staged, row, [&](int n, const float(&sums)[1], int to) {
    const float value = sums[0] * r + (p.qkv_bias != nullptr ? __ldg(p.qkv_bias + global_row(n)) : 0.0F);
#pragma unroll 1
    for (; to < kStepBlocks; to += project.put_turns()) arrivals.send(found + mine + n, to, value);
  });
  if (thread < d) {
    angles[thread] = cosine;
    angles[d + thread] = second ? sine : -sine;
  }
  __syncthreads();
  arrivals.wait();
  T* new_row = reinterpret_cast<T*>(turned + width);  // the key and the value in the cache format
  each_number(p.rows(), [&](int n, int of, int c) {
    float x = found[n];
    if (of <= p.group && c < p.rotary_dim) {
      const int partner = p.interleaved ? c ^ 1 : c < half ? c + half : c - half;
      x = fmaf(x, angles[c], found[n - c + partner] * angles[d + c]);
    }
    if (of < p.group) {
      turned[n] = x * p.scale;
    } else {
      new_row[n - width] = from_float<T>(x);
    }
  });
  lamina::cuda::cp_async_wait<0>();
  __syncthreads();
  if (place >= share.begin && place < share.end && (split || cluster.rank == 0) && thread < 2 * d / kColumns) {
    const int of = thread * kColumns < d ? 0 : 1;
    reinterpret_cast<RawColumns<T>*>((of == 0 ? k : v) +
                                     p.key_index(cluster.id, place) * d)[thread - of * d / kColumns] =
        reinterpret_cast<const RawColumns<T>*>(new_row)[thread];
  }
  float q[kColumns];
#pragma unroll
  for (int c = 0; c < kColumns; ++c) q[c] = inside ? turned[head * d + column + c] : 0.0F;
  float acc[kColumns] = {};
  float most = kMinusLarge;
  float sum = 0;
#pragma unroll 1
  for (int first = share.begin; first < share.end; first += groups * kKeysAtOnce) {  // uniform loop bounds
    if (first != share.begin) {
      fetch(first);
      lamina::cuda::cp_async_wait<0>();
    }
    float s[kKeysAtOnce];
#pragma unroll
    for (int n = 0; n < kKeysAtOnce; ++n) {
      const bool is_new = first + n * groups + own == place && inside;
      const T* from = is_new ? new_row + column : reinterpret_cast<const T*>(&keys[n][thread]);
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
      s[n] = first + n * groups + own < share.end ? s[n] : -INFINITY;
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
      const bool is_new = first + n * groups + own == place && inside;
      const T* from = is_new ? new_row + d + column : reinterpret_cast<const T*>(&values[n][thread]);
      float x[kColumns];
      reinterpret_cast<const RawColumns<T>*>(from)->unpack(x);
#pragma unroll
      for (int c = 0; c < kColumns; ++c) acc[c] = fmaf(weight, x[c], acc[c]);
    }
  }
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
  if (lane == 0) warp_stats[warp] = {most, sum};
  if (lane < p.lanes) {
    auto* to = reinterpret_cast<float4*>(warp_values + warp * lanes_width + column);
    to[0] = {acc[0], acc[1], acc[2], acc[3]};
    to[1] = {acc[4], acc[5], acc[6], acc[7]};
  }
  __syncthreads();
  // Merge the warps first, then the blocks if they had shares.
#pragma unroll 1
  for (int level = 0; level < (split ? 2 : 1); ++level) {
    const int count = level == 0 ? warps_each : kStepBlocks;
    const float2* stats = level == 0 ? warp_stats : block_stats;
    const float* all_values = level == 0 ? warp_values : block_values;
    const int stride = level == 0 ? lanes_width : width;
    if (level == 1) Cluster::meet();
    each_number(width, [&](int n, int of, int c) {
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
        result[n] = total != 0 ? value / total : 0.0F;
        return;
      }
      auto* stats_to = reinterpret_cast<float*>(block_stats + of * kStepBlocks + cluster.rank);
#pragma unroll 1
      for (int block = 0; block < kStepBlocks; ++block) {
        Cluster::put(block_values + cluster.rank * width + n, block, value);
        if (c == 0) {
          Cluster::put(stats_to, block, row_max);
          Cluster::put(stats_to + 1, block, total);
        }
      }
    });
  }
  __syncthreads();
  merge.multiply(staged_out, result, [&](int n, const float(&sums)[1], int to) {
    if (to != 0) return;
    const bool biased = p.out_bias != nullptr && cluster.id == 0;
    part[n] = sums[0] + (biased ? __ldg(p.out_bias + out + n) : 0.0F);
  });
}

}  // namespace

void attention_sublayer_step(const AttentionSublayerStep& args, Tensor& parts) {
  const char* op = "attention_sublayer_step";
  const Device& device = args.stream.x.device();
  const AttentionProjections& weights = args.weights;
  const bool taken = supports_sublayer_step(args.stream, {weights.qkv.plain, weights.qkv_bias, weights.out.plain,
                                                          weights.out_bias, args.k_cache, args.v_cache});
  constexpr int64_t kMostKeys = 2048;  // beyond this, the shares of eight blocks per KV head are too long
  const int64_t group = weights.out.dim(1) / args.k_cache.dim(3) / args.k_cache.dim(1);
  if (!taken || group > kStepWarps || args.capacity() > kMostKeys) return;
  AttentionSublayerParams p{};
  static_cast<StepHeads&>(p) = step_heads(args);
  p.in = step_input(args.stream);
  p.qkv = packs_of(weights.qkv.plain);
  p.qkv_bias = device_data<float>(weights.qkv_bias);
  for (p.lanes = 8; p.lanes * kColumns < p.d;) p.lanes *= 2;
  p.row_each = ceil_div(p.rows(), kStepBlocks);
  p.out_each = ceil_div(p.in.width, kStepBlocks);
  p.row_lane_bits = lane_bits_for(p.row_each, p.row_chunks());
  p.out_lane_bits = lane_bits_for(p.out_each, p.heads_width() / 8);
  lamina::cuda::visit_floating(op, args.k_cache.dtype(), [&](auto tag) {
    using T = DeviceType<typename decltype(tag)::type>;
    const size_t shared = p.shared<T>();
    if (shared > most_step_bytes(device)) return;
    parts = Tensor::empty({p.n_kv_heads, p.in.width}, DType::f32, device);
    p.parts = parts.data<float>();
    launch_step(attention_sublayer_kernel<T>, p.n_kv_heads, shared, device, p, op);
  });
}

}  // namespace lamina::ops::cuda
