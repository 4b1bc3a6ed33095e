// Forward on Hopper's tensor cores (wgmma), for bf16 and f16 and heads up to 128 wide (padded to 64 or 128). A
// warpgroup has 64 queries of one head; a block has two or three warpgroups. One thread loads tiles of 64 keys and
// values by TMA into a ring buffer. Scores, weights and the output accumulator stay in registers: the rounded weights
// are the left operand of the second product.
//
// P V of one tile is issued after Q Kᵀ of the next, so it overlaps with the softmax of the next tile. Other warpgroups
// keep the tensor cores busy meanwhile, so exponentials are the bottleneck. Tiles that no query of the block sees are
// never loaded. Warps that see no key of a tile multiply by zeros, and only warps at the edge of the mask test single
// scores. Blocks of one head are adjacent, so its keys hit the L2 cache; the longest blocks start first.
//
// This kernel is 1.5 times as fast as the one with mma.sync, which is limited by reading operands from shared memory,
// and about as fast as cuDNN's.
#include "lamina/ops/attention/cuda/softmax.cuh"
#include "lamina/ops/attention/cuda/wgmma/wgmma.cuh"
#include "lamina/tensor/cuda/tma.cuh"

namespace lamina::ops::cuda {
/// A named namespace with only inline functions, so that builds for other GPUs have no unused functions.
namespace wgmma_forward {

using lamina::cuda::barrier_arrive;
using lamina::cuda::barrier_expect;
using lamina::cuda::barrier_init;
using lamina::cuda::barrier_wait;
using lamina::cuda::tma_load;
using Coverage = DeviceMask::Coverage;

inline constexpr int kGroupQueries = 64;

/// The block configuration for heads padded to kD.
template <int kD>
struct Plan {
  static constexpr int kGroups = kD == 64 ? 2 : 3;
  static constexpr int kKeys = 64;
  static constexpr int kBlocksPerSm = kD == 64 ? 2 : 1;  // resident blocks per SM
  static constexpr int kStages = 5;
  static constexpr int kAhead = 2;       // tiles in flight; more stages than that let warpgroups drift apart
  static_assert(kStages >= kAhead + 2);  // when a tile is overwritten, the loading thread itself no longer reads it
  static constexpr int kQueries = kGroups * kGroupQueries;
  static constexpr int kThreads = kGroups * kGroupThreads;
  static constexpr int kBoxBytes = kKeys * kBoxWidth * 2;
  static constexpr int kTileBytes = kKeys * kD * 2;
  static constexpr int kStageBytes = 2 * kTileBytes;  // keys, then values
  static constexpr int kQueryBoxBytes = kGroupQueries * kBoxWidth * 2;
  static constexpr int kQueryBytes = kGroupQueries * kD * 2;  // bytes of a warpgroup's queries
  static constexpr int kSharedBytes = 1024 + kGroups * kQueryBytes + kStages * kStageBytes;
};

/// TMA descriptors of [batch, seq, heads, width]; a box is 64 columns of a head.
struct TmaDescriptors {
  CUtensorMap q, k, v;
};

/// Iterates over the visible tiles of keys and values in the ring buffer. Every thread iterates; one of them issues the
/// loads.
template <int kD, bool kHoles>
class KvTilePipeline {
  using P = Plan<kD>;
  using Stage = lamina::cuda::Ring<P::kStages>;

 public:
  static constexpr int kBarriers = 2 * P::kStages;

  __device__ KvTilePipeline(const AttentionParams& p, const TmaDescriptors& boxes, int b, int kv_head, int q0, int q1,
                            uint32_t tiles, uint32_t barriers)
      : p_(p),
        boxes_(boxes),
        b_(b),
        kv_head_(kv_head),
        q0_(q0),
        q1_(q1),
        end_(min(p.mask.keys(q1 - 1).end, p.seq_k)),
        tiles_(tiles),
        barriers_(barriers) {}

  /// Initializes the barriers. Called by one thread, before other threads use them.
  __device__ static void begin_barriers(uint32_t barriers) {
    for (int i = 0; i < P::kStages; ++i) {
      barrier_init(barriers + i * 8, 1);
      barrier_init(barriers + (P::kStages + i) * 8, P::kThreads / 32);
    }
  }
  __device__ void begin() {
    coming_[0] = next_tile(max(p_.mask.keys(q0_).begin, 0) / P::kKeys * P::kKeys);
#pragma unroll
    for (int n = 0; n < P::kAhead; ++n) {
      load(coming_[n]);
      coming_[n + 1] = next_tile(coming_[n] + P::kKeys);
    }
  }

  __device__ bool over() const { return coming_[0] >= end_; }
  /// First key of the current tile.
  __device__ int key() const { return coming_[0]; }
  __device__ uint32_t keys() const { return tiles_ + now_.index * P::kStageBytes; }
  __device__ uint32_t values() const { return keys() + P::kTileBytes; }
  __device__ uint32_t free_barrier() const { return barriers_ + (P::kStages + now_.index) * 8; }
  __device__ void wait() const { barrier_wait(barriers_ + now_.index * 8, now_.parity); }
  /// Issues the load of the tile that is kAhead tiles after the current one. Call it once per tile.
  __device__ void load_ahead() { load(coming_[P::kAhead]); }
  __device__ void advance() {
    now_.next();
#pragma unroll
    for (int n = 0; n < P::kAhead; ++n) coming_[n] = coming_[n + 1];
    coming_[P::kAhead] = next_tile(coming_[P::kAhead] + P::kKeys);
  }

  /// True in the thread that issues the loads. It is in the last warpgroup, which has the most work under a causal
  /// mask.
  __device__ static bool loads() { return threadIdx.x == P::kThreads - kGroupThreads; }

 private:
  __device__ int next_tile(int k0) const {
    return kHoles && !p_.mask.is_contiguous_range ? p_.mask.next_keys(q0_, q1_, k0, end_, P::kKeys) : k0;
  }
  __device__ void load(int k0) {
    if (loads() && k0 < end_) {
      const uint32_t filled = barriers_ + loading_.index * 8;
      barrier_wait(filled + P::kStages * 8, loading_.parity ^ 1);
      barrier_expect(filled, P::kStageBytes);
      const uint32_t to = tiles_ + loading_.index * P::kStageBytes;
#pragma unroll
      for (int n = 0; n < kD / kBoxWidth; ++n) {
        tma_load(to + n * P::kBoxBytes, boxes_.k, filled, n * kBoxWidth, kv_head_, k0, b_);
        tma_load(to + P::kTileBytes + n * P::kBoxBytes, boxes_.v, filled, n * kBoxWidth, kv_head_, k0, b_);
      }
    }
    loading_.next();
  }

  const AttentionParams& p_;
  const TmaDescriptors& boxes_;
  int b_, kv_head_, q0_, q1_, end_;
  uint32_t tiles_;
  uint32_t barriers_;          // for each stage a "filled" barrier, then for each stage a "free" barrier
  int coming_[P::kAhead + 1];  // first keys of the current tile and of the tiles in flight
  Stage now_;
  Stage loading_;
};

/// The score processing that a kernel is compiled for. Features that are left out cost no registers.
enum class Scoring {
  plain,
  with_holes,   // patterns with holes
  with_slopes,  // ALiBi
  with_table,   // T5 bias
  general       // everything in ScoreFeatures::general
};
__host__ __device__ constexpr bool has_holes(Scoring scoring) {
  return scoring == Scoring::with_holes || scoring == Scoring::general;
}
__host__ __device__ constexpr bool is_biased(Scoring scoring) {
  return scoring != Scoring::plain && scoring != Scoring::with_holes;
}

/// Adds ALiBi to a warp's scores if no key comes after its query or, if `before`, if no key comes before its query. The
/// bias is then linear in the key: a term per column is added to s, and the rest is constant per row and returned in
/// `shift`.
template <int kBlocks>
__device__ inline void add_slope(const AttentionParams& p, const HeadBias& bias, bool before, const ScoreIndex& place,
                                 AccumulatorTile<1, kBlocks>& s, RowValues<1>& shift) {
  const float slope = before ? -bias.slope * p.bias_factor : bias.slope * p.bias_factor;
  const auto distance = static_cast<float>(place.key - place.query - bias.offset);
  shift[0] = slope * distance;
  shift[1] = slope * (distance - 8.0F);
  for_sums<1, kBlocks>(s, [&](float& x, int, int column) { x = fmaf(slope, static_cast<float>(column), x); });
}

/// Turns products q·k into scores: soft cap, negative scales, bias.
template <Scoring kScoring, int kBlocks>
__device__ inline void shape_scores(const AttentionParams& p, const HeadBias& bias, const ScoreIndex& place,
                                    AccumulatorTile<1, kBlocks>& s, RowValues<1>& shift) {
  if constexpr (kScoring == Scoring::general) {
    apply_soft_cap<false, 1, kBlocks>(p, HeadBias{}, place.query, place.key, s, [](int, int, int, float) {});
  }
  if (!bias.any()) return;
  if (kScoring != Scoring::with_table && bias.table == nullptr) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    // Distance from the warp's first key to its first query.
    const int distance = place.query - lane / 4 + bias.offset - (place.key - lane % 4 * 2);
    const bool keys_first = p.mask.causal || distance >= 8 * kBlocks - 1;
    if (keys_first || distance + 15 <= 0) return add_slope<kBlocks>(p, bias, !keys_first, place, s, shift);
  }
  shift[0] = shift[1] = for_biases<false, 1, kBlocks>(p, bias, place.query, place.key,
                                                      [&](int, int n, int i, float value) { s[0][n][i] += value; });
}

template <class T, int kD, int kBlocks>
__device__ inline void begin_scores(AccumulatorTile<1, kBlocks>& s, uint32_t queries, uint32_t keys) {
  using P = Plan<kD>;
#pragma unroll
  for (int k = 0; k < kD / 16; ++k) {
    const uint64_t left = smem_descriptor(queries + k / 4 * P::kQueryBoxBytes);
    const uint64_t right = smem_descriptor(keys + k / 4 * P::kBoxBytes);
    multiply_shared<T, kKMajor, kKMajor, kBlocks>(s, left + k % 4 * kStepKMajor, right + k % 4 * kStepKMajor, k > 0);
  }
}

template <class T, int kD, int kSteps>
__device__ inline void begin_results(AccumulatorTile<1, kD / 8>& y, const uint32_t (&weights)[kSteps][4],
                                     uint32_t values) {
  const uint64_t right = smem_descriptor(values, Plan<kD>::kBoxBytes);
#pragma unroll
  for (int k = 0; k < kSteps; ++k) multiply_held<T, kMnMajor, kD / 8>(y, weights[k], right + k * kStepMnMajor);
}

/// The queries, head and batch row of a block.
struct Place {
  int q0, q1, head, b;

  __device__ Place(const AttentionParams& p, int queries)
      : q0(static_cast<int>(gridDim.x - 1 - blockIdx.x) * queries),
        q1(min(q0 + queries, p.seq_q)),
        head(static_cast<int>(blockIdx.y)),
        b(static_cast<int>(blockIdx.z)) {}
};

/// Loads the queries of the block to shared memory. Called by one thread.
template <int kD>
__device__ inline void load_queries(const TmaDescriptors& boxes, const Place& at, uint32_t memory, uint32_t barrier) {
  using P = Plan<kD>;
  constexpr int kBoxes = kD / kBoxWidth;  // TMA boxes per warpgroup
  barrier_expect(barrier, P::kGroups * P::kQueryBytes);
  for (int n = 0; n < P::kGroups * kBoxes; ++n) {
    tma_load(memory + n * P::kQueryBoxBytes, boxes.q, barrier, n % kBoxes * kBoxWidth, at.head,
             at.q0 + n / kBoxes * kGroupQueries, at.b);
  }
}

/// Adds the bias and sets masked scores to −inf: the last step before the softmax.
template <Scoring kScoring, int kBlocks>
__device__ inline void finish_scores(const AttentionParams& p, const HeadBias& bias, const ScoreIndex& place,
                                     const WarpVisibility& view, uint64_t allowed, AccumulatorTile<1, kBlocks>& s,
                                     RowValues<1>& shift) {
  if constexpr (is_biased(kScoring)) shape_scores<kScoring, kBlocks>(p, bias, place, s, shift);
  if (view.range == Coverage::partial) mask_scores<1, kBlocks>(p, place.query, place.key, view.keys, s);
  if (has_holes(kScoring) && view.holes) apply_mask_bits<1, kBlocks>(allowed, -INFINITY, s);
}

template <Scoring kScoring>
__device__ inline HeadBias bias_of(const AttentionParams& p, int head) {
  if constexpr (!is_biased(kScoring)) return {};
  HeadBias bias = p.bias_of(head);
  if constexpr (kScoring == Scoring::with_slopes) bias.table = nullptr;
  if constexpr (kScoring == Scoring::with_table) __builtin_assume(bias.table != nullptr);
  return bias;
}

template <class T, int kD, Scoring kScoring, ScoreFeatures kWork>
__global__ __launch_bounds__(Plan<kD>::kThreads, Plan<kD>::kBlocksPerSm) void forward_wgmma_kernel(
    const __grid_constant__ AttentionParams p, const __grid_constant__ TmaDescriptors boxes) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using P = Plan<kD>;
  constexpr int kBlocks = P::kKeys / 8;
  constexpr int kSteps = P::kKeys / 16;
  constexpr bool kHoles = has_holes(kScoring);
  using Pipeline = KvTilePipeline<kD, kHoles>;
  extern __shared__ unsigned char shared[];
  __shared__ alignas(8) uint64_t barriers[Pipeline::kBarriers + 1];
  const uint32_t memory = (shared_address(shared) + 1023) / 1024 * 1024;
  const uint32_t query_barrier = shared_address(barriers + Pipeline::kBarriers);
  const Place at(p, P::kQueries);
  if (Pipeline::loads()) {
    Pipeline::begin_barriers(shared_address(barriers));
    barrier_init(query_barrier, 1);
    lamina::cuda::fence_barrier_init();
    fence_async_proxy();
    load_queries<kD>(boxes, at, memory, query_barrier);
  }
  Pipeline pipeline(p, boxes, at.b, at.head / p.group, at.q0, at.q1, memory + P::kGroups * P::kQueryBytes,
                    shared_address(barriers));
  pipeline.begin();
  const HeadBias bias = bias_of<kScoring>(p, at.head);
  const uint64_t stream = dropout_stream<kWork>(p);
  SoftmaxRows<1> rows(p, at.head);
  __syncthreads();  // the barriers are initialized

  // Broadcast with a shuffle, so that the compiler knows that it is the same in the whole warp.
  const int warp = __shfl_sync(lamina::cuda::kAllLanes, static_cast<int>(threadIdx.x) / 32, 0);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const uint32_t queries = memory + warp / 4 * P::kQueryBytes;
  const int row = at.q0 + warp * 16;  // first row of the warp
  const WarpKeyRange reach(p.mask, row, min(row + 16, at.q1));
  const int query = row + lane / 4;  // first row of the lane
  AccumulatorTile<1, kD / 8> y;
  clear<1, kD / 8>(y);
  uint32_t weights[kSteps][4] = {};     // weights of the previous tile
  uint32_t values = pipeline.values();  // values of the previous tile; at first those of the first tile, with weights 0
  uint32_t free_barrier = 0;            // barrier that frees the previous tile
  barrier_wait(query_barrier, 0);
  if (!pipeline.over()) {
#pragma unroll 1
    do {
      const WarpVisibility view = reach.of<kHoles>(p.mask, pipeline.key(), pipeline.key() + P::kKeys);
      const ScoreIndex place{at.b, at.head, query, pipeline.key() + lane % 4 * 2};
      uint64_t allowed = 0;  // needs a function call, during which no wgmma may be in flight
      if (kHoles && view.holes) allowed = allowed_bits<false, 1, kBlocks>(p.mask, place.query, place.key);
      AccumulatorTile<1, kBlocks> s;
      pipeline.wait();
      wgmma_fence();
      begin_scores<T, kD, kBlocks>(s, queries, pipeline.keys());
      wgmma_commit();
      begin_results<T, kD, kSteps>(y, weights, values);
      wgmma_commit();
      pipeline.load_ahead();
      wgmma_wait<1>();
      fence_registers(s);
      RowValues<1> shift{};
      RowValues<1> found;
      if (view.range != Coverage::none) {
        finish_scores<kScoring, kBlocks>(p, bias, place, view, allowed, s, shift);
        rows.find_maxima<kBlocks>(shift, s, found);
      }
      wgmma_wait();
      fence_registers(y);
#pragma unroll
      for (int k = 0; k < kSteps; ++k) fence_registers(weights[k]);
      if (free_barrier != 0 && lane == 0) barrier_arrive(free_barrier);
      if (view.range != Coverage::none) {
        rows.raise<kD / 8>(p.unit, found, y);
        rows.weigh<kBlocks>(p.unit, shift, s);
        DropoutMaskOf<kWork, false, 1, kBlocks> kept(p, stream, place);
        kept.complete(p, stream, place);
        for_places<1, kBlocks>([&](int m, int n, int i) { s[m][n][i] = kept.at(m, n, i) ? s[m][n][i] : 0.0F; });
#pragma unroll
        for (int k = 0; k < kSteps; ++k) pack_left<T, kBlocks>(weights[k], s, k);
      } else {
#pragma unroll
        for (int k = 0; k < kSteps; ++k) weights[k][0] = weights[k][1] = weights[k][2] = weights[k][3] = 0;
      }
      values = pipeline.values();
      free_barrier = pipeline.free_barrier();
      pipeline.advance();
    } while (!pipeline.over());
    wgmma_fence();
    begin_results<T, kD, kSteps>(y, weights, values);
    finish_products();
    fence_registers(y);
  }
  rows.finish<kD / 8>(p, p.statistics_row(at.b, at.head), query, at.q1,
                      kWork == ScoreFeatures::general_dropout ? p.dropout.factor : 1.0F, y);
  // The warpgroup has finished reading the queries, so their memory can stage the results.
  asm volatile("bar.sync %0, %1;\n" ::"r"(warp / 4 + 1), "n"(kGroupThreads) : "memory");
  store_rows<T, kD / 8>(y, Tile<T, kBoxWidth>{queries}, P::kQueryBoxBytes, warp % 4 * 16,
                        static_cast<T*>(p.y) + p.y_at.at(at.b, row, at.head), p.y_at.seq, at.q1 - row, p.d_v);
#endif
}

}  // namespace wgmma_forward

namespace {

using namespace wgmma_forward;  // NOLINT: names of this file

template <class T, int kD>
auto* kernel_of(const AttentionParams& p) {
  constexpr auto kDropped = ScoreFeatures::general_dropout;
  constexpr auto kGeneral = ScoreFeatures::general;
  const bool biased = p.bias != nullptr || p.slopes != nullptr;
  const bool transformed = p.soft_cap > 0 || p.scale <= 0;
  const bool holes = !p.mask.is_contiguous_range;
  if (has_dropout(score_features(p))) {
    return biased || transformed || holes ? forward_wgmma_kernel<T, kD, Scoring::general, kDropped>
                                          : forward_wgmma_kernel<T, kD, Scoring::plain, kDropped>;
  }
  if (transformed || (biased && holes)) return forward_wgmma_kernel<T, kD, Scoring::general, kGeneral>;
  if (holes) return forward_wgmma_kernel<T, kD, Scoring::with_holes, kGeneral>;
  if (!biased) return forward_wgmma_kernel<T, kD, Scoring::plain, kGeneral>;
  return p.bias != nullptr ? forward_wgmma_kernel<T, kD, Scoring::with_table, kGeneral>
                           : forward_wgmma_kernel<T, kD, Scoring::with_slopes, kGeneral>;
}

template <class T, int kD>
bool launch(const AttentionParams& p, const Device& device) {
  using P = Plan<kD>;
  constexpr int kMost = 65535;  // limit of gridDim.y and gridDim.z
  if (p.n_heads > kMost || p.batch > kMost) return false;
  TmaDescriptors boxes;
  if (!make_tma_descriptor<T>(boxes.q, p, p.q, p.d_qk, p.n_heads, p.seq_q, kGroupQueries, p.q_at) ||
      !make_tma_descriptor<T>(boxes.k, p, p.k, p.d_qk, p.n_kv_heads, p.seq_k, P::kKeys, p.k_at) ||
      !make_tma_descriptor<T>(boxes.v, p, p.v, p.d_v, p.n_kv_heads, p.seq_k, P::kKeys, p.v_at)) {
    return false;
  }
  const auto kernel = kernel_of<T, kD>(p);
  LAMINA_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, P::kSharedBytes), "attention");
  const dim3 blocks((p.seq_q + P::kQueries - 1) / P::kQueries, p.n_heads, p.batch);
  kernel<<<blocks, P::kThreads, P::kSharedBytes, lamina::cuda::stream_of(device)>>>(p, boxes);
  lamina::cuda::check_launch("attention");
  return true;
}

}  // namespace

template <class T>
bool forward_by_wgmma(const AttentionParams& p, const Device& device) {
  using D = DeviceType<T>;
  if (!p.vectorized || p.seq_q == 0 || p.seq_k == 0 || !lamina::cuda::has_wgmma(device, "attention")) return false;
  if (p.d_qk <= 64 && p.d_v <= 64) return launch<D, 64>(p, device);
  // With fewer queries a third of each block would be idle, and only one block fits an SM.
  return p.seq_q > 128 && launch<D, 128>(p, device);
}

template bool forward_by_wgmma<bf16>(const AttentionParams&, const Device&);
template bool forward_by_wgmma<f16>(const AttentionParams&, const Device&);

}  // namespace lamina::ops::cuda
