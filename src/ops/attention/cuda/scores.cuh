#pragma once

// The work of a warp on its tile of scores between two tensor-core products: mask, bias, dropout. Also declares the
// tensor-core kernels.

#include "lamina/ops/attention/cuda/mma/mma.cuh"
#include "lamina/tensor/cuda/wgmma.cuh"

namespace lamina::ops::cuda {

/// The score processing that a kernel is compiled for.
enum class ScoreFeatures {
  plain,            // scaling and range masks only
  general,          // also soft cap, bias and patterns with holes
  general_dropout,  // general, with dropout
  plain_dropout,    // plain, with dropout
};
constexpr bool has_general_scores(ScoreFeatures work) {
  return work == ScoreFeatures::general || work == ScoreFeatures::general_dropout;
}
constexpr bool has_dropout(ScoreFeatures work) {
  return work == ScoreFeatures::general_dropout || work == ScoreFeatures::plain_dropout;
}

/// Calls fn(m, n, i, bias) for each score of a warp. `query` and `key` belong to the lane's first score; rows are keys
/// if kByKeys. The bias depends only on query − key, so a lane looks it up once per diagonal of its 8×8 blocks. If the
/// bias is the same for the whole warp, fn is not called and the bias is returned; otherwise returns 0.
template <bool kByKeys, int kRowTiles, int kBlocks, class F>
__device__ inline float for_biases(const AttentionParams& p, const HeadBias& bias, int query, int key, const F& fn) {
  constexpr int kSign = kByKeys ? -1 : 1;
  constexpr int kDiagonals = 2 * kRowTiles + kBlocks - 1;
  const auto further = [](int diagonal, int i) { return kSign * (8 * (diagonal - (kBlocks - 1)) - i); };
  const int distance = query + bias.offset - key;
  float values[kDiagonals][2];
  if (bias.table != nullptr) {
    const float* at = bias.table + (query - key);
    constexpr int kSpan = 16 * kRowTiles > 8 * kBlocks ? 16 * kRowTiles : 8 * kBlocks;
    const bool flat = distance - kSpan >= bias.flat_from || distance + kSpan <= -bias.flat_from;
    if (__all_sync(lamina::cuda::kAllLanes, flat)) return *at * p.bias_factor;
#pragma unroll
    for (int n = 0; n < kDiagonals; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) values[n][i] = at[further(n, i)] * p.bias_factor;
    }
  } else {
    const float slope = -bias.slope * p.bias_factor;
    const auto first = static_cast<float>(distance);
#pragma unroll
    for (int n = 0; n < kDiagonals; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) values[n][i] = slope * fabsf(first + static_cast<float>(further(n, i)));
    }
  }
  for_places<kRowTiles, kBlocks>(
      [&](int m, int n, int i) { fn(m, n, i, values[2 * m + i / 2 - n + kBlocks - 1][i % 2]); });
  return 0;
}

/// True if q·k needs a soft cap or a negative scale before the bias is added.
__device__ inline bool needs_score_transform(const AttentionParams& p) { return p.soft_cap > 0 || p.scale <= 0; }

/// Initializes a warp's accumulators of q·k with the bias, if possible. Returns a constant that must still be added to
/// all scores.
template <bool kByKeys, int kRowTiles, int kBlocks>
__device__ inline float start_scores(const AttentionParams& p, const HeadBias& bias, int query, int key,
                                     AccumulatorTile<kRowTiles, kBlocks>& s) {
  clear<kRowTiles, kBlocks>(s);
  if (needs_score_transform(p) || !bias.any()) return 0;
  return for_biases<kByKeys, kRowTiles, kBlocks>(p, bias, query, key,
                                                 [&](int m, int n, int i, float value) { s[m][n][i] = value; });
}

/// Applies the soft cap and negative scales, then the bias. Calls on_cap(m, n, i, t) with t the tanh of the soft cap.
/// Returns a constant that must still be added to all scores.
template <bool kByKeys, int kRowTiles, int kBlocks, class F>
__device__ inline float apply_soft_cap(const AttentionParams& p, const HeadBias& bias, int query, int key,
                                       AccumulatorTile<kRowTiles, kBlocks>& s, const F& on_cap) {
  if (!needs_score_transform(p)) return 0;
  const float inner = p.soft_cap > 0 ? p.scale / p.soft_cap : p.scale * kLog2E;
  const float outer = p.soft_cap * kLog2E;
  for_places<kRowTiles, kBlocks>([&](int m, int n, int i) { s[m][n][i] *= inner; });
  if (p.soft_cap > 0) {
    for_places<kRowTiles, kBlocks>([&](int m, int n, int i) {
      const float t = quick_tanh(s[m][n][i]);
      s[m][n][i] = outer * t;
      on_cap(m, n, i, t);
    });
  }
  if (!bias.any()) return 0;
  return for_biases<kByKeys, kRowTiles, kBlocks>(p, bias, query, key,
                                                 [&](int m, int n, int i, float value) { s[m][n][i] += value; });
}

/// Which scores of a tile a warp sees: the coverage by ranges, the range of `keys`, and whether the pattern has holes
/// in the tile.
struct WarpVisibility {
  DeviceMask::Coverage range;
  bool holes;
  DeviceMask::Range keys;
};

/// A warp's queries [q0, q1), all in one row of cells, with the key ranges of the first and the last query.
struct WarpKeyRange {
  DeviceMask::Range first;
  DeviceMask::Range last;
  int q0;
  int q1;

  __device__ WarpKeyRange(const DeviceMask& mask, int begin, int end)
      : first(begin < end ? mask.keys(begin) : DeviceMask::Range{0, 0}),
        last(begin < end ? mask.keys(end - 1) : DeviceMask::Range{0, 0}),
        q0(begin),
        q1(end) {}
  /// Visibility of keys [k0, k1), which are at most two cells and may extend past the last key. If kHoles is false,
  /// ranges describe the mask exactly.
  template <bool kHoles>
  __device__ WarpVisibility of(const DeviceMask& mask, int k0, int k1) const {
    using Coverage = DeviceMask::Coverage;
    constexpr int kCell = DeviceMask::kCell;
    if (q0 >= q1 || first.begin >= k1 || last.end <= k0) return {Coverage::none, false, {k0, k1}};
    const Coverage range = last.begin <= k0 && first.end >= k1 ? Coverage::full : Coverage::partial;
    if (!kHoles || mask.is_contiguous_range) return {range, false, {k0, k1}};
    const uint2 cells = mask.cells_of(q0, k0, k1);
    if (cells.x == 0) return {Coverage::none, false, {k0, k1}};
    const int begin = k0 + (__ffs(static_cast<int>(cells.x)) - 1) * kCell;
    const int end = min(k0 + (32 - __clz(static_cast<int>(cells.x))) * kCell, k1);
    return {begin == k0 && end == k1 ? range : Coverage::partial, cells.y != 0, {begin, end}};
  }
};

/// One bit per score of a lane: bit (m · kBlocks + n) · 4 + i is set if the pattern allows score (m, n, i). `query` and
/// `key` belong to the lane's first score; rows are keys if kByKeys.
template <bool kByKeys, int kRowTiles, int kBlocks>
__device__ __noinline__ uint64_t allowed_bits(const DeviceMask& mask, int query, int key) {
  uint64_t bits = 0;
#pragma unroll 1
  for (int n = 0; n < kRowTiles * kBlocks * 4; ++n) {
    const int row = n / 4 / kBlocks * 16 + n % 4 / 2 * 8;
    const int column = n / 4 % kBlocks * 8 + n % 2;
    const int i = query + (kByKeys ? column : row);
    const int j = key + (kByKeys ? row : column);
    const bool allowed = i < mask.seq_q && j < mask.seq_k && mask.pattern_allows(i, j);
    bits |= static_cast<uint64_t>(allowed) << n;
  }
  return bits;
}

/// Sets the scores whose bit in `bits` (from allowed_bits()) is 0 to `hidden`.
template <int kRowTiles, int kBlocks>
__device__ inline void apply_mask_bits(uint64_t bits, float hidden, AccumulatorTile<kRowTiles, kBlocks>& sums) {
  for_places<kRowTiles, kBlocks>([&](int m, int n, int i) {
    sums[m][n][i] = (bits >> ((m * kBlocks + n) * 4 + i) & 1) != 0 ? sums[m][n][i] : hidden;
  });
}

/// Sets scores in holes of the pattern to `hidden`.
template <bool kByKeys, int kRowTiles, int kBlocks>
__device__ inline void mask_pattern_holes(const DeviceMask& mask, int query, int key, float hidden,
                                          AccumulatorTile<kRowTiles, kBlocks>& sums) {
  apply_mask_bits<kRowTiles, kBlocks>(allowed_bits<kByKeys, kRowTiles, kBlocks>(mask, query, key), hidden, sums);
}

/// Batch row, head, query and key of a lane's first score in a tile.
struct ScoreIndex {
  int b;
  int head;
  int query;
  int key;
};

/// The dropout mask of a lane's weights, one bit each. In a 16×16 tile, two lanes that are 4 apart share a patch; of
/// two adjacent tiles each of them generates the patch of one. The constructor has no branches, so that its
/// instructions interleave with those of a matrix product; complete() exchanges the bits.
template <bool kByKeys, int kRowTiles, int kBlocks>
class DropoutMask {
 public:
  /// `place` belongs to the lane's first weight; rows are keys if kByKeys.
  __device__ DropoutMask(const AttentionParams& p, uint64_t stream, const ScoreIndex& place) {
    const uint32_t row = p.dropout_row(place.b, place.head, place.query);
    const uint32_t column = dropout_patch(static_cast<uint32_t>(place.key));
    const uint32_t own_tile = is_odd() ? 4 : 0;
    const auto draw = [&](int pair) {
      const uint32_t down = static_cast<uint32_t>(pair / kRowPairs * 4);
      const uint32_t across = static_cast<uint32_t>(pair % kRowPairs * 8) + own_tile;
      return p.dropout.kept(stream, row + (kByKeys ? across : down), column + (kByKeys ? down : across));
    };
#pragma unroll
    for (int n = 0; n < kPairs; n += 2) {
      bits_[n / 2] = n + 1 < kPairs ? __byte_perm(draw(n), draw(n + 1), 0x5410) : draw(n);
    }
  }
  /// Must be called before the first at().
  __device__ void complete(const AttentionParams&, uint64_t, const ScoreIndex&) {
    const uint32_t own = is_odd() ? ~kEvenLanes : kEvenLanes;
    const int turn = is_odd() ? 32 - kApart : kApart;
#pragma unroll
    for (uint32_t& bits : bits_) {
      const uint32_t got = __shfl_xor_sync(lamina::cuda::kAllLanes, bits, 4);
      bits = (bits & own) | (__funnelshift_l(got, got, turn) & ~own);
      if (kByKeys) {  // the bit order that at() expects: swaps bits 0 and 3, and 1 and 2, of a weight's index
        swap_bits<7>(bits, 0x00aa00aaU);
        swap_bits<2>(bits, 0x0c0c0c0cU);
      }
    }
  }
  /// True if weight (m, n, i) is kept. With this bit order, one instruction turns a byte into eight predicates.
  __device__ bool at(int m, int n, int i) const {
    const int number = (m * kBlocks + n) * 4 + i;
    return (bits_[number / 32] >> (number % 32) & 1) != 0;
  }

 private:
  static_assert(kBlocks % 4 == 0);
  static constexpr int kRowPairs = kBlocks / 4;  // pairs of adjacent tiles per row of tiles
  static constexpr int kPairs = kRowTiles * kRowPairs;
  /// The bits of a patch that belong to the even lane, and the distance to those of the odd lane.
  static constexpr uint32_t kEvenLanes = kByKeys ? 0x55555555U : 0x00ff00ffU;
  static constexpr int kApart = kByKeys ? 1 : 8;

  /// Swaps the bits in `mask` with the bits kStep above them.
  template <int kStep>
  __device__ static void swap_bits(uint32_t& bits, uint32_t mask) {
    const uint32_t differ = (bits ^ bits >> kStep) & mask;
    bits ^= differ ^ differ << kStep;
  }
  __device__ static bool is_odd() { return threadIdx.x / 4 % 2 != 0; }

  uint32_t bits_[(kPairs + 1) / 2];  // 16 bits per pair of tiles
};

/// Takes the place of DropoutMask if there is no dropout.
struct NoDropout {
  __device__ NoDropout(const AttentionParams&, uint64_t, const ScoreIndex&) {}
  __device__ void complete(const AttentionParams&, uint64_t, const ScoreIndex&) {}
  __device__ bool at(int, int, int) const { return true; }
};

template <ScoreFeatures kWork, bool kByKeys, int kRowTiles, int kBlocks>
using DropoutMaskOf = std::conditional_t<has_dropout(kWork), DropoutMask<kByKeys, kRowTiles, kBlocks>, NoDropout>;

/// The random stream of dropout; 0 without dropout.
template <ScoreFeatures kWork>
__device__ inline uint64_t dropout_stream(const AttentionParams& p) {
  return has_dropout(kWork) ? p.dropout.stream() : 0;
}

// Tensor-core kernels (mma.sync) for heads up to kWidestMma wide. T is bf16 or, in forward, also f16.

constexpr int kWidestMma = 128;
constexpr int kMostMmaBuckets = 128;

inline bool supports_mma(const AttentionParams& params) {
  // Few keys are excluded: weights are rounded between products, and with few keys the errors do not average out. Small
  // problems and narrow heads would not be faster either.
  const auto fits = [](int width) { return width >= 16 && width <= kWidestMma; };
  const bool few = static_cast<int64_t>(params.seq_q) * params.seq_k <= 32 * 32;
  return fits(params.d_qk) && fits(params.d_v) && params.t5_buckets <= kMostMmaBuckets && !few &&
         !(params.t5_buckets > 0 && params.soft_cap > 0);  // otherwise dt5 and dq would need different score gradients
}
inline ScoreFeatures score_features(const AttentionParams& params) {
  const bool general = params.soft_cap > 0 || params.bias != nullptr || params.slopes != nullptr || params.scale <= 0 ||
                       !params.mask.is_contiguous_range;
  if (params.dropout.threshold != 0) return general ? ScoreFeatures::general_dropout : ScoreFeatures::plain_dropout;
  return general ? ScoreFeatures::general : ScoreFeatures::plain;
}
/// Returns kernel_of(work), where the work is passed as a type.
template <class F>
auto kernel_for(ScoreFeatures work, const F& kernel_of) {
  switch (work) {
    case ScoreFeatures::general: return kernel_of(std::integral_constant<ScoreFeatures, ScoreFeatures::general>{});
    case ScoreFeatures::general_dropout:
      return kernel_of(std::integral_constant<ScoreFeatures, ScoreFeatures::general_dropout>{});
    case ScoreFeatures::plain_dropout:
      return kernel_of(std::integral_constant<ScoreFeatures, ScoreFeatures::plain_dropout>{});
    default: return kernel_of(std::integral_constant<ScoreFeatures, ScoreFeatures::plain>{});
  }
}
/// Launches `blocks` blocks of `threads` threads and `bytes` of shared memory; each block handles one head.
template <class Kernel>
void launch_heads(Kernel kernel, int64_t blocks, int threads, int bytes, const AttentionParams& p,
                  cudaStream_t stream) {
  LAMINA_CHECK(blocks < int64_t{1} << 31, "attention: ", p.batch, " rows of ", p.n_heads, " heads and ", p.seq_q,
               " queries exceed the CUDA grid limit; use a smaller batch");
  if (blocks == 0) return;
  LAMINA_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), "attention");
  kernel<<<static_cast<unsigned>(blocks), threads, bytes, stream>>>(p);
  lamina::cuda::check_launch("attention");
}
/// Queries per block of the kernel that computes dq.
inline int mma_query_rows(const AttentionParams& params) { return params.d_qk <= 64 && params.d_v <= 64 ? 128 : 64; }

template <class T>
void forward_by_mma(const AttentionParams& params, cudaStream_t stream);
/// Forward on Hopper's tensor cores, for cases that supports_mma() accepts. Returns false if there is no kernel for the
/// case.
template <class T>
bool forward_by_wgmma(const AttentionParams& params, const Device& device);
template <class T>
void key_gradients_by_mma(const AttentionParams& params, cudaStream_t stream);
template <class T>
void query_gradients_by_mma(const AttentionParams& params, cudaStream_t stream);

// Backward on Hopper's tensor cores for cases that supports_mma() accepts, heads up to 64 wide.

constexpr int kWgmmaQueries = 64;   // queries per block of the kernel that computes dq
constexpr int kMaxDistances = 512;  // maximum number of distances with separate sums, limited by shared memory

inline bool supports_wgmma_backward(const AttentionParams& params, const Device& device) {
  for (const HeadStrides& at : {params.q_at, params.k_at, params.v_at, params.y_at}) {
    if (at.seq < 0 || at.seq >= int64_t{1} << 31) return false;  // row offsets are 32-bit
  }
  return params.d_qk <= 64 && params.d_v <= 64 && (params.t5_buckets == 0 || params.t5_flat_from <= kMaxDistances) &&
         lamina::cuda::has_wgmma(device, "attention");
}
template <class T>
void key_gradients_by_wgmma(const AttentionParams& params, cudaStream_t stream);
template <class T>
void query_gradients_by_wgmma(const AttentionParams& params, cudaStream_t stream);

}  // namespace lamina::ops::cuda
