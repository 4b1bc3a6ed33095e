// One-pass backward of plain attention on Hopper's tensor cores: five products per tile, where separate passes for dk,
// dv and for dq need seven. A block has 192 keys of one KV head, 64 per warpgroup, and iterates over the queries of all
// heads that share this KV head, 64 at a time. Scores are computed transposed, as keys × queries, so that weights and
// score gradients can be the left operands of dv and dk directly from registers.
//
// For dq, the rounded score gradients are also stored in shared memory. The warpgroups take turns: one of them
// multiplies the score gradients of all 192 keys, read transposed, with the keys, one tile late, so that no warpgroup
// waits for another. The result accumulates into dq with f32 atomics, so it is not deterministic. Each thread adds 16
// bytes at a time in accumulator order; a final kernel rearranges dq into rows. One thread loads queries and dy by TMA
// into a ring buffer.
#include "lamina/ops/attention/cuda/rotated.cuh"
#include "lamina/ops/attention/cuda/wgmma/backward_wgmma.cuh"
#include "lamina/tensor/cuda/tma.cuh"

namespace lamina::ops::cuda {
/// A named namespace with only inline functions, so that builds for other GPUs have no unused functions.
namespace one_pass {

using lamina::cuda::barrier_arrive;
using lamina::cuda::barrier_arrive_warp;
using lamina::cuda::barrier_expect;
using lamina::cuda::barrier_init;
using lamina::cuda::barrier_wait;
using lamina::cuda::bulk_copy;
using lamina::cuda::kArrivals;
using lamina::cuda::Ring;
using lamina::cuda::tma_load;

inline constexpr int kGroups = 3;
inline constexpr int kKeys = kGroups * kTileRows;
inline constexpr int kThreads = kGroups * kGroupThreads;
inline constexpr int kWarps = kThreads / 32;
inline constexpr int kStages = 4;
inline constexpr int kAhead = 2;  // tiles in flight; more stages than that let warpgroups drift apart
// While slot i is filled, warpgroup i multiplies the score gradients of the previous slot.
inline constexpr int kSlots = kGroups;
inline constexpr int kSlotBytes = kGroups * kTileBytes;
inline constexpr int kNumberBytes = kTileRows * 4;
inline constexpr int kSharedBytes =
    1024 + 2 * kGroups * kTileBytes + kStages * (kStageBytes + 2 * kNumberBytes) + kSlots * kSlotBytes;
inline constexpr int kTileNumbers = kTileRows * kHeadWidth;

/// TMA descriptors of q, k, v and dy.
struct TmaDescriptors {
  CUtensorMap q, k, v, dy;
};

/// Barriers of the block: "filled" and "free" for each stage and each slot, and one for the keys and values.
struct Barriers {
  static constexpr int kCount = 2 * kStages + 2 * kSlots + 1;
  uint32_t first;

  __device__ uint32_t filled(int stage) const { return first + stage * 8; }
  __device__ uint32_t free(int stage) const { return first + (kStages + stage) * 8; }
  __device__ uint32_t slot_filled(int slot) const { return first + (2 * kStages + slot) * 8; }
  __device__ uint32_t slot_free(int slot) const { return first + (2 * kStages + kSlots + slot) * 8; }
  __device__ uint32_t keys() const { return first + (2 * kStages + 2 * kSlots) * 8; }
  __device__ void begin() const {
    for (int n = 0; n < kStages; ++n) {
      barrier_init(filled(n), 1);
      barrier_init(free(n), kWarps * kArrivals);
    }
    for (int n = 0; n < kSlots; ++n) {
      barrier_init(slot_filled(n), kWarps * kArrivals);
      barrier_init(slot_free(n), kWarps / kGroups);
    }
    barrier_init(keys(), 1);
    lamina::cuda::fence_barrier_init();
  }
};

/// Longest-first schedule: within a group of `heads_per_group` KV heads, key blocks visible to the most queries come
/// first.
struct Place {
  int k0, kv_head, b;

  __device__ Place(const AttentionParams& p, int heads_per_group) {
    const int blocks = (p.seq_k + kKeys - 1) / kKeys;
    const int index = static_cast<int>(blockIdx.x);
    const int all = p.batch * p.n_kv_heads;
    const int first = index / (blocks * heads_per_group) * heads_per_group;
    const int concurrent_heads = min(heads_per_group, all - first);
    const int rest = index - first * blocks;
    k0 = rest / concurrent_heads * kKeys;
    const int head = first + rest % concurrent_heads;
    kv_head = head % p.n_kv_heads;
    b = head / p.n_kv_heads;
  }
};

/// The 64 keys of a warpgroup, as seen by one lane.
struct GroupKeys {
  int key;         // first key of the lane
  int first_seen;  // queries before this one see none of the warpgroup's keys
  int seen_from;   // queries in [seen_from, seen_to) see all of the warpgroup's keys
  int seen_to;

  __device__ GroupKeys(const AttentionParams& p, int first, int lane_key) : key(lane_key) {
    const bool any = first < p.seq_k;
    const bool all = first + kTileRows <= p.seq_k;
    first_seen = any ? p.mask.queries(first).begin : p.seq_q;
    seen_from = all ? p.mask.queries(first + kTileRows - 1).begin : p.seq_q;
    seen_to = all ? p.mask.queries(first).end : 0;
  }
  __device__ bool may_see(int q0) const { return q0 + kTileRows > first_seen; }
  /// Turns products q·k into weights. `query` is the lane's first query and `base` its statistics; q0 is the tile's
  /// first query.
  __device__ void weigh(const AttentionParams& p, int q0, int query, const float* base, Accumulator64& s) const {
#pragma unroll
    for (int n = 0; n < kTileRows / 8; ++n) {
      const float2 low = *reinterpret_cast<const float2*>(base + n * 8);
#pragma unroll
      for (int i = 0; i < 4; ++i) s[0][n][i] = fast_exp2(fmaf(s[0][n][i], p.unit, i % 2 == 0 ? -low.x : -low.y));
    }
    if (q0 < seen_from || q0 + kTileRows > seen_to) mask_scores(p, query, s);
  }

 private:
  __device__ void mask_scores(const AttentionParams& p, int query, Accumulator64& s) const {
    DeviceMask::Range seen[2];
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      seen[n] = key + n * 8 < p.seq_k ? p.mask.queries(key + n * 8) : DeviceMask::Range{0, 0};
    }
    for_sums<1, kTileRows / 8>(s, [&](float& x, int row, int column) {
      const DeviceMask::Range& own = seen[half_of(row)];
      x = query + column >= own.begin && query + column < own.end ? x : 0.0F;
    });
  }
};

/// Turns ds = v·dy into score gradients, for half a tile. `delta` points to the value of the lane's first query.
__device__ inline void find_score_gradients(const float* delta, const HalfSums& weights, HalfSums& ds) {
#pragma unroll
  for (int n = 0; n < kHalfBlocks; ++n) {
    const float2 mean = *reinterpret_cast<const float2*>(delta + n * 8);
#pragma unroll
    for (int i = 0; i < 4; ++i) ds[0][n][i] = (ds[0][n][i] - (i % 2 == 0 ? mean.x : mean.y)) * weights[0][n][i];
  }
}

/// A tile whose score gradients are in a slot, and the accumulator to which its dq is added.
struct PendingQueryGradient {
  Ring<kSlots> slot;
  float* sums = nullptr;

  /// Multiplies the score gradients of all keys of the block with the keys and adds the result to dq.
  template <class T>
  __device__ void accumulate_dq(const Barriers& barriers, uint32_t slots, uint32_t keys) const {
    barrier_wait(barriers.slot_filled(slot.index), slot.parity);
    const uint64_t gradients = smem_descriptor(slots + slot.index * kSlotBytes);
    const uint64_t rows = smem_descriptor(keys);
    Accumulator64 dq;
    wgmma_fence();
#pragma unroll
    for (int n = 0; n < kGroups; ++n) {
#pragma unroll
      for (int k = 0; k < kTileRows / 16; ++k) {
        const int further = n * (kTileBytes >> 4) + k * kStepMnMajor;
        multiply_shared<T, kMnMajor, kMnMajor, kHeadWidth / 8>(dq, gradients + further, rows + further, n + k > 0);
      }
    }
    finish_products();
    fence_registers<kHeadWidth / 8>(dq);
    if (threadIdx.x % 32 == 0) barrier_arrive(barriers.slot_free(slot.index));
    float* own = sums + threadIdx.x % kGroupThreads * 4;
#pragma unroll
    for (int n = 0; n < kHeadWidth / 8; ++n) {
      asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};\n" ::"l"(own + n * kGroupThreads * 4),
                   "f"(dq[0][n][0]), "f"(dq[0][n][1]), "f"(dq[0][n][2]), "f"(dq[0][n][3])
                   : "memory");
    }
  }
};

/// Loads a tile of queries and dy to shared memory at `to`, and their statistics to `numbers`, by TMA.
__device__ __forceinline__ void load_queries(const AttentionParams& p, const TmaDescriptors& boxes, const Place& block,
                                             const QueryTile& tile, uint32_t filled, uint32_t to, uint32_t numbers) {
  barrier_expect(filled, kStageBytes + 2 * kNumberBytes);
  tma_load(to, boxes.q, filled, 0, tile.head, tile.q0, block.b);
  tma_load(to + kTileBytes, boxes.dy, filled, 0, tile.head, tile.q0, block.b);
  const int64_t row = p.statistics_row(block.b, tile.head) + tile.q0;
  bulk_copy(numbers, p.base + row, kNumberBytes, filled);
  bulk_copy(numbers + kNumberBytes, p.delta + row, kNumberBytes, filled);
}

/// Loads the keys and values of all warpgroups by TMA.
__device__ __forceinline__ void load_keys(const TmaDescriptors& boxes, const Place& block, uint32_t filled,
                                          uint32_t keys, uint32_t values) {
  barrier_expect(filled, 2 * kGroups * kTileBytes);
  for (int n = 0; n < kGroups; ++n) {
    tma_load(keys + n * kTileBytes, boxes.k, filled, 0, block.kv_head, block.k0 + n * kTileRows, block.b);
    tma_load(values + n * kTileBytes, boxes.v, filled, 0, block.kv_head, block.k0 + n * kTileRows, block.b);
  }
}

/// Stores 16 rows of dk and dv, from key `first` on, staged in the shared memory at `keys` and `values`.
template <class T>
__device__ __forceinline__ void store_key_gradients(const AttentionParams& p, const Place& block, int first,
                                                    int warp_row, uint32_t keys, uint32_t values,
                                                    const Accumulator64& dk, const Accumulator64& dv) {
  const int count = min(block.k0 + kKeys, p.seq_k) - first;
  store_rows<T, kHeadWidth / 8>(dk, Tile<T, kHeadWidth>{keys}, 0, warp_row,
                                static_cast<T*>(p.dk) + p.dk_at.at(block.b, first, block.kv_head), p.dk_at.seq, count,
                                p.d_qk);
  store_rows<T, kHeadWidth / 8>(dv, Tile<T, kHeadWidth>{values}, 0, warp_row,
                                static_cast<T*>(p.dv) + p.dv_at.at(block.b, first, block.kv_head), p.dv_at.seq, count,
                                p.d_v);
}

template <class T>
__global__ __launch_bounds__(kThreads, 1) void one_pass_gradient_kernel(const __grid_constant__ AttentionParams p,
                                                                        const __grid_constant__ TmaDescriptors boxes,
                                                                        int heads_per_group, const RotaryAngles angles,
                                                                        float* dq) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ unsigned char shared[];
  __shared__ alignas(8) uint64_t barrier_memory[Barriers::kCount];
  unsigned char* memory = shared + (1024 - shared_address(shared) % 1024) % 1024;
  const uint32_t keys = shared_address(memory);
  const uint32_t values = keys + kGroups * kTileBytes;
  const uint32_t stages = values + kGroups * kTileBytes;
  const uint32_t slots = stages + kStages * kStageBytes;
  const auto* numbers = reinterpret_cast<const float*>(memory + (slots - keys) + kSlots * kSlotBytes);
  const Barriers barriers{shared_address(barrier_memory)};

  const Place block(p, heads_per_group);
  const int k1 = min(block.k0 + kKeys, p.seq_k);
  const QueryTileIterator iterator(p, block.kv_head, block.k0, k1);
  QueryTile at = iterator.first();
  QueryTile coming = at;
  Ring<kStages> loading;
  const auto load = [&] {
    if (threadIdx.x == 0 && iterator.has(coming)) {
      barrier_wait(barriers.free(loading.index), loading.parity ^ 1);
      load_queries(p, boxes, block, coming, barriers.filled(loading.index), stages + loading.index * kStageBytes,
                   shared_address(numbers) + loading.index * 2 * kNumberBytes);
    }
    loading.next();
    coming = iterator.next(coming);
  };
  if (threadIdx.x == 0) {
    barriers.begin();
    fence_async_proxy();
    load_keys(boxes, block, barriers.keys(), keys, values);
  }
  for (int n = 0; n < kAhead; ++n) load();
  __syncthreads();  // the barriers are initialized

  // Broadcast with a shuffle, so that the compiler knows that it is the same in the whole warp.
  const int warp = __shfl_sync(lamina::cuda::kAllLanes, static_cast<int>(threadIdx.x) / 32, 0);
  const int group = warp / (kWarps / kGroups);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int group_key = block.k0 + group * kTileRows;
  const int warp_row = warp * 16 % kTileRows;
  const int column = lane % 4 * 2;  // first column of the lane
  const GroupKeys own(p, group_key, group_key + warp_row + lane / 4);
  const uint64_t own_keys = smem_descriptor(keys + group * kTileBytes);
  const uint64_t own_values = smem_descriptor(values + group * kTileBytes);
  const int tiles = p.seq_q / kTileRows;
  Accumulator64 dk;
  Accumulator64 dv;
  clear<1, kHeadWidth / 8>(dk);
  clear<1, kHeadWidth / 8>(dv);
  Ring<kStages> stage;
  Ring<kSlots> slot;
  PendingQueryGradient before;
  barrier_wait(barriers.keys(), 0);
#pragma unroll 1
  while (iterator.has(at)) {
    load();
    barrier_wait(barriers.filled(stage.index), stage.parity);
    const uint64_t queries = smem_descriptor(stages + stage.index * kStageBytes);
    const uint64_t dys = smem_descriptor(stages + stage.index * kStageBytes + kTileBytes);
    const Tile<T, kHeadWidth> left{slots + slot.index * kSlotBytes + group * kTileBytes};
    HalfOperand weights[2] = {};
    HalfOperand gradients[2] = {};
    if (own.may_see(at.q0)) {
      const float* base = numbers + stage.index * 2 * kTileRows + column;
      const float* delta = base + kTileRows;
      Accumulator64 s;
      Accumulator64 ds;
      wgmma_fence();
      multiply_rows<T>(s, own_keys, queries, false);
      wgmma_commit();
      multiply_rows<T>(ds, own_values, dys, false);
      wgmma_commit();
      wgmma_wait<1>();
      fence_registers<kTileRows / 8>(s);
      own.weigh(p, at.q0, at.q0 + column, base, s);
      wgmma_wait();
      fence_registers<kTileRows / 8>(ds);
      barrier_wait(barriers.slot_free(slot.index), slot.parity ^ 1);
#pragma unroll
      for (int right = 0; right < 2; ++right) {
        HalfSums& half = half_of_sums(s, right);
        HalfSums& half_ds = half_of_sums(ds, right);
        find_score_gradients(delta + right * kHalfColumns, half, half_ds);
        weights[right].pack<T>(half);
        gradients[right].pack<T>(half_ds);
        gradients[right].store_shared(left, warp_row, right);
        wgmma_fence();
        weights[right].multiply<T>(dv, dys + right * kHalfColumns / 16 * kStepMnMajor);
        gradients[right].multiply<T>(dk, queries + right * kHalfColumns / 16 * kStepMnMajor);
        wgmma_commit();
      }
    } else {
      barrier_wait(barriers.slot_free(slot.index), slot.parity ^ 1);
      for (int right = 0; right < 2; ++right) gradients[right].store_shared(left, warp_row, right);
    }
    fence_async_proxy();
    barrier_arrive_warp(barriers.slot_filled(slot.index));
    if (slot.index == group && before.sums != nullptr) before.accumulate_dq<T>(barriers, slots, keys);
    finish_key_sums(dv, weights, dk, gradients);
    barrier_arrive_warp(barriers.free(stage.index));
    const int64_t row = static_cast<int64_t>(block.b) * p.n_heads + at.head;
    before = {slot, dq + (row * tiles + at.q0 / kTileRows) * kTileNumbers};
    stage.next();
    slot.next();
    at = iterator.next(at);
  }
  if (slot.index == group && before.sums != nullptr) before.accumulate_dq<T>(barriers, slots, keys);
  __syncthreads();  // the keys are no longer read
  scale_sums<1, kHeadWidth / 8>(dk, p.scale);
  angles.rotate_back(dk, own.key, p.seq_k);
  store_key_gradients<T>(p, block, group_key + warp_row, warp_row, keys + group * kTileBytes,
                         values + group * kTileBytes, dk, dv);
#endif
}

/// Converts the accumulators to rows of dq. One block per tile of queries.
template <class T>
__global__ __launch_bounds__(kGroupThreads) void finish_queries_kernel(const __grid_constant__ AttentionParams p,
                                                                       const RotaryAngles angles, const float* sums) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  __shared__ alignas(1024) unsigned char memory[kTileBytes];
  const int tiles = p.seq_q / kTileRows;
  const int head = static_cast<int>(blockIdx.x / tiles) % p.n_heads;
  const int b = static_cast<int>(blockIdx.x / tiles) / p.n_heads;
  const int warp_row = static_cast<int>(threadIdx.x) / 32 * 16;
  const int row = static_cast<int>(blockIdx.x % tiles) * kTileRows + warp_row;
  const float* own = sums + static_cast<int64_t>(blockIdx.x) * kTileNumbers + threadIdx.x * 4;
  Accumulator64 dq;
#pragma unroll
  for (int n = 0; n < kHeadWidth / 8; ++n) {
    const auto four = *reinterpret_cast<const float4*>(own + n * kGroupThreads * 4);
    dq[0][n][0] = four.x * p.scale;
    dq[0][n][1] = four.y * p.scale;
    dq[0][n][2] = four.z * p.scale;
    dq[0][n][3] = four.w * p.scale;
  }
  angles.rotate_back(dq, row + static_cast<int>(threadIdx.x) % 32 / 4, p.seq_q);
  store_rows<T, kHeadWidth / 8>(dq, Tile<T, kHeadWidth>{shared_address(memory)}, 0, warp_row,
                                static_cast<T*>(p.dq) + p.dq_at.at(b, row, head), p.dq_at.seq, p.seq_q - row, p.d_qk);
#endif
}

}  // namespace one_pass

namespace {

using namespace one_pass;  // NOLINT: names of this file

/// Number of blocks whose heads are scheduled concurrently. Enough that the longest blocks do not finish last, and few
/// enough that their inputs and accumulators stay in the L2 cache.
constexpr int64_t kConcurrentBlocks = 352;
/// Up to this many keys the two-pass backward is as fast, because much of each block is masked here, and the
/// accumulators must be cleared and read.
constexpr int kMaxTwoPassKeys = 512;

}  // namespace

bool supports_one_pass_backward(const AttentionParams& p, const Device& device) {
  const int64_t tiles = static_cast<int64_t>(p.seq_q / kTileRows) * p.n_heads * p.batch;
  return score_features(p) == ScoreFeatures::plain && p.sinks == nullptr && p.vectorized && p.seq_q % kTileRows == 0 &&
         p.seq_k > kMaxTwoPassKeys && tiles < int64_t{1} << 31 && supports_mma(p) && supports_wgmma_backward(p, device);
}

template <class T>
void one_pass_backward(const AttentionParams& p, const RotaryAngles& angles, const Device& device) {
  using D = DeviceType<T>;
  TmaDescriptors boxes;
  const bool mapped = make_tma_descriptor<D>(boxes.q, p, p.q, p.d_qk, p.n_heads, p.seq_q, kTileRows, p.q_at) &&
                      make_tma_descriptor<D>(boxes.dy, p, p.dy, p.d_v, p.n_heads, p.seq_q, kTileRows, p.y_at) &&
                      make_tma_descriptor<D>(boxes.k, p, p.k, p.d_qk, p.n_kv_heads, p.seq_k, kTileRows, p.k_at) &&
                      make_tma_descriptor<D>(boxes.v, p, p.v, p.d_v, p.n_kv_heads, p.seq_k, kTileRows, p.v_at);
  LAMINA_CHECK(mapped,
               "attention: the driver cannot create a TMA descriptor for these heads; update it, or use a "
               "deterministic device, whose kernels do not need TMA");
  cudaStream_t stream = lamina::cuda::stream_of(device);
  const int64_t tiles = static_cast<int64_t>(p.seq_q / kTileRows) * p.n_heads * p.batch;
  Tensor sums = Tensor::empty({tiles, kTileNumbers}, DType::f32, device);
  LAMINA_CUDA(cudaMemsetAsync(sums.raw(), 0, static_cast<size_t>(sums.nbytes()), stream), "attention");
  const int64_t blocks_of_head = (p.seq_k + kKeys - 1) / kKeys;
  const int heads_per_group = static_cast<int>(std::max<int64_t>(kConcurrentBlocks / blocks_of_head, 1));
  const auto kernel = one_pass_gradient_kernel<D>;
  LAMINA_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes), "attention");
  kernel<<<static_cast<unsigned>(blocks_of_head * p.n_kv_heads * p.batch), kThreads, kSharedBytes, stream>>>(
      p, boxes, heads_per_group, angles, sums.data<float>());
  lamina::cuda::check_launch("attention");
  finish_queries_kernel<D><<<static_cast<unsigned>(tiles), kGroupThreads, 0, stream>>>(p, angles, sums.data<float>());
  lamina::cuda::check_launch("attention");
}

template void one_pass_backward<bf16>(const AttentionParams&, const RotaryAngles&, const Device&);

}  // namespace lamina::ops::cuda
