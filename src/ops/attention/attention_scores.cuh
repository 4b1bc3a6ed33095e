#pragma once

// What happens to a warp's tile of scores between two products on tensor cores: what it sees, bias, dropout. And the
// kernels made of it.

#include "lamina/ops/attention/attention_mma.cuh"
#include "lamina/tensor/cuda/wgmma.cuh"

namespace lamina::ops::cuda {

/// What happens to scores between the products, as far as kernels are compiled for it.
enum class ScoreWork {
  plain,          // scaled, and seen in ranges
  shaped,         // soft cap, bias and patterns with holes, too
  dropped,        // and dropout
  plain_dropped,  // plain, and dropout
};
constexpr bool shapes(ScoreWork work) { return work == ScoreWork::shaped || work == ScoreWork::dropped; }
constexpr bool drops(ScoreWork work) { return work == ScoreWork::dropped || work == ScoreWork::plain_dropped; }

/// Calls fn(m, n, i, bias) for each of a warp's scores; `query` and `key` are those of the lane's first number, rows
/// are keys where kByKeys. The bias depends on query − key alone, so that a lane looks it up once for each diagonal of
/// its 8×8 blocks. Where it is the same for all of the warp it is only returned; else returns 0.
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

/// Whether something happens to q·k before the bias is added.
__device__ inline bool is_bent(const AttentionParams& p) { return p.soft_cap > 0 || p.scale <= 0; }

/// What a warp's q·k are added to: the bias, if it can be. Returns what all scores have to be raised by beside it.
template <bool kByKeys, int kRowTiles, int kBlocks>
__device__ inline float start_scores(const AttentionParams& p, const HeadBias& bias, int query, int key,
                                     Sums<kRowTiles, kBlocks>& s) {
  clear<kRowTiles, kBlocks>(s);
  if (is_bent(p) || !bias.any()) return 0;
  return for_biases<kByKeys, kRowTiles, kBlocks>(p, bias, query, key,
                                                 [&](int m, int n, int i, float value) { s[m][n][i] = value; });
}

/// Soft cap, scales below zero, and then the bias. Calls on_cap(m, n, i, t) with the soft cap's tanh. Returns what all
/// scores have to be raised by beside it.
template <bool kByKeys, int kRowTiles, int kBlocks, class F>
__device__ inline float bend_scores(const AttentionParams& p, const HeadBias& bias, int query, int key,
                                    Sums<kRowTiles, kBlocks>& s, const F& on_cap) {
  if (!is_bent(p)) return 0;
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

/// What a warp sees of a tile: nothing, some or all by range, nothing outside `keys`, and whether the pattern has holes
/// in it.
struct WarpView {
  DeviceMask::Coverage range;
  bool holes;
  DeviceMask::Range keys;
};

/// What a warp knows of its queries [q0, q1), all of one row of cells: the ranges of the first and the last.
struct WarpReach {
  DeviceMask::Range first;
  DeviceMask::Range last;
  int q0;
  int q1;

  __device__ WarpReach(const DeviceMask& mask, int begin, int end)
      : first(begin < end ? mask.keys(begin) : DeviceMask::Range{0, 0}),
        last(begin < end ? mask.keys(end - 1) : DeviceMask::Range{0, 0}),
        q0(begin),
        q1(end) {}
  /// For keys [k0, k1) of at most two cells, which may lie partly behind the last key. Not kHoles: ranges say
  /// everything.
  template <bool kHoles>
  __device__ WarpView of(const DeviceMask& mask, int k0, int k1) const {
    using Coverage = DeviceMask::Coverage;
    constexpr int kCell = DeviceMask::kCell;
    if (q0 >= q1 || first.begin >= k1 || last.end <= k0) return {Coverage::none, false, {k0, k1}};
    const Coverage range = last.begin <= k0 && first.end >= k1 ? Coverage::full : Coverage::partial;
    if (!kHoles || mask.ranges_suffice) return {range, false, {k0, k1}};
    const uint2 cells = mask.cells_of(q0, k0, k1);
    if (cells.x == 0) return {Coverage::none, false, {k0, k1}};
    const int begin = k0 + (__ffs(static_cast<int>(cells.x)) - 1) * kCell;
    const int end = min(k0 + (32 - __clz(static_cast<int>(cells.x))) * kCell, k1);
    return {begin == k0 && end == k1 ? range : Coverage::partial, cells.y != 0, {begin, end}};
  }
};

/// A bit per number of a lane, number (m, n, i) at (m · kBlocks + n) · 4 + i: whether the pattern has no hole there.
/// `query` and `key` are those of the first; rows are keys where kByKeys.
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

/// Numbers whose bit of allowed_bits() is not set become `hidden`.
template <int kRowTiles, int kBlocks>
__device__ inline void hide_others(uint64_t bits, float hidden, Sums<kRowTiles, kBlocks>& sums) {
  for_places<kRowTiles, kBlocks>([&](int m, int n, int i) {
    sums[m][n][i] = (bits >> ((m * kBlocks + n) * 4 + i) & 1) != 0 ? sums[m][n][i] : hidden;
  });
}

/// Numbers in a pattern's holes become `hidden`.
template <bool kByKeys, int kRowTiles, int kBlocks>
__device__ inline void hide_holes(const DeviceMask& mask, int query, int key, float hidden,
                                  Sums<kRowTiles, kBlocks>& sums) {
  hide_others<kRowTiles, kBlocks>(allowed_bits<kByKeys, kRowTiles, kBlocks>(mask, query, key), hidden, sums);
}

/// The first number of a lane in a tile of scores.
struct ScorePlace {
  int b;
  int head;
  int query;
  int key;
};

/// Which of a lane's weights dropout keeps, a bit each. Of a 16×16 tile two lanes, 4 apart, have the weights of a patch
/// between them: of two such tiles side by side each lane draws its patch of one. The constructor draws, without a
/// branch, so that it may mix with a product's instructions; complete() exchanges what both need.
template <bool kByKeys, int kRowTiles, int kBlocks>
class KeptBits {
 public:
  /// `place` is that of the lane's first number; rows are keys where kByKeys.
  __device__ KeptBits(const AttentionParams& p, uint64_t stream, const ScorePlace& place) {
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
  /// Before the first at().
  __device__ void complete(const AttentionParams&, uint64_t, const ScorePlace&) {
    const uint32_t own = is_odd() ? ~kEvenLanes : kEvenLanes;
    const int turn = is_odd() ? 32 - kApart : kApart;
#pragma unroll
    for (uint32_t& bits : bits_) {
      const uint32_t got = __shfl_xor_sync(lamina::cuda::kAllLanes, bits, 4);
      bits = (bits & own) | (__funnelshift_l(got, got, turn) & ~own);
      if (kByKeys) {  // the order of at(): bits 0 and 3 of a weight's number change places, and so do 1 and 2
        swap_bits<7>(bits, 0x00aa00aaU);
        swap_bits<2>(bits, 0x0c0c0c0cU);
      }
    }
  }
  /// In this order a byte of bits becomes eight predicates by one instruction.
  __device__ bool at(int m, int n, int i) const {
    const int number = (m * kBlocks + n) * 4 + i;
    return (bits_[number / 32] >> (number % 32) & 1) != 0;
  }

 private:
  static_assert(kBlocks % 4 == 0);
  static constexpr int kRowPairs = kBlocks / 4;  // of tiles side by side
  static constexpr int kPairs = kRowTiles * kRowPairs;
  /// A patch's weights of the even one of the two lanes, and how far behind them those of the other are.
  static constexpr uint32_t kEvenLanes = kByKeys ? 0x55555555U : 0x00ff00ffU;
  static constexpr int kApart = kByKeys ? 1 : 8;

  /// Exchanges the masked bits with those kStep above them.
  template <int kStep>
  __device__ static void swap_bits(uint32_t& bits, uint32_t mask) {
    const uint32_t differ = (bits ^ bits >> kStep) & mask;
    bits ^= differ ^ differ << kStep;
  }
  __device__ static bool is_odd() { return threadIdx.x / 4 % 2 != 0; }

  uint32_t bits_[(kPairs + 1) / 2];  // 16 for each pair of tiles
};

/// In the place of KeptBits where all are kept.
struct NothingDropped {
  __device__ NothingDropped(const AttentionParams&, uint64_t, const ScorePlace&) {}
  __device__ void complete(const AttentionParams&, uint64_t, const ScorePlace&) {}
  __device__ bool at(int, int, int) const { return true; }
};

template <ScoreWork kWork, bool kByKeys, int kRowTiles, int kBlocks>
using KeptOf = std::conditional_t<drops(kWork), KeptBits<kByKeys, kRowTiles, kBlocks>, NothingDropped>;

/// The stream weights are dropped by.
template <ScoreWork kWork>
__device__ inline uint64_t dropout_stream(const AttentionParams& p) {
  return drops(kWork) ? p.dropout.stream() : 0;
}

// Kernels on tensor cores, for heads up to kWidestMma wide; T is bf16, or f16 forward.

constexpr int kWidestMma = 128;
constexpr int kMostMmaBuckets = 128;

inline bool takes_mma(const AttentionParams& params) {
  // Weights are rounded between products: over a few keys those errors do not average out. There and in narrow heads is
  // nothing to gain either.
  const auto fits = [](int width) { return width >= 16 && width <= kWidestMma; };
  const bool few = static_cast<int64_t>(params.seq_q) * params.seq_k <= 32 * 32;
  return fits(params.d_qk) && fits(params.d_v) && params.t5_buckets <= kMostMmaBuckets && !few &&
         !(params.t5_buckets > 0 && params.soft_cap > 0);  // then dt5 and dq have different gradients of the scores
}
inline ScoreWork score_work(const AttentionParams& params) {
  const bool shaped = params.soft_cap > 0 || params.bias != nullptr || params.slopes != nullptr || params.scale <= 0 ||
                      !params.mask.ranges_suffice;
  if (params.dropout.threshold != 0) return shaped ? ScoreWork::dropped : ScoreWork::plain_dropped;
  return shaped ? ScoreWork::shaped : ScoreWork::plain;
}
/// kernel_of(work), as a type.
template <class F>
auto kernel_for(ScoreWork work, const F& kernel_of) {
  switch (work) {
    case ScoreWork::shaped: return kernel_of(std::integral_constant<ScoreWork, ScoreWork::shaped>{});
    case ScoreWork::dropped: return kernel_of(std::integral_constant<ScoreWork, ScoreWork::dropped>{});
    case ScoreWork::plain_dropped: return kernel_of(std::integral_constant<ScoreWork, ScoreWork::plain_dropped>{});
    default: return kernel_of(std::integral_constant<ScoreWork, ScoreWork::plain>{});
  }
}
/// Blocks of so many threads, each of one head.
template <class Kernel>
void launch_heads(Kernel kernel, int64_t blocks, int threads, int bytes, const AttentionParams& p,
                  cudaStream_t stream) {
  LAMINA_CHECK(blocks < int64_t{1} << 31, "attention: ", p.batch, " rows of ", p.n_heads, " heads and ", p.seq_q,
               " queries are more blocks than one launch takes; use a smaller batch");
  if (blocks == 0) return;
  LAMINA_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), "attention");
  kernel<<<static_cast<unsigned>(blocks), threads, bytes, stream>>>(p);
  lamina::cuda::check_launch("attention");
}
/// Queries of one block of the kernel that makes dq.
inline int mma_query_rows(const AttentionParams& params) { return params.d_qk <= 64 && params.d_v <= 64 ? 128 : 64; }

template <class T>
void forward_by_mma(const AttentionParams& params, cudaStream_t stream);
/// Of what takes_mma(), on Hopper's matrix units; false where it has no kernel for it.
template <class T>
bool forward_by_wgmma(const AttentionParams& params, const Device& device);
template <class T>
void key_gradients_by_mma(const AttentionParams& params, cudaStream_t stream);
template <class T>
void query_gradients_by_mma(const AttentionParams& params, cudaStream_t stream);

// Gradients on Hopper's matrix units, of what takes_mma(), in heads up to 64 wide.

constexpr int kWgmmaQueries = 64;        // of one block of the kernel that makes dq
constexpr int kMostWalkDistances = 512;  // with buckets of their own, for which shared memory has room

inline bool takes_wgmma_backward(const AttentionParams& params, const Device& device) {
  for (const HeadStrides& at : {params.q_at, params.k_at, params.v_at, params.y_at}) {
    if (at.seq < 0 || at.seq >= int64_t{1} << 31) return false;  // rows are found by 32 bits
  }
  return params.d_qk <= 64 && params.d_v <= 64 &&
         (params.t5_buckets == 0 || params.t5_flat_from <= kMostWalkDistances) &&
         lamina::cuda::has_wgmma(device, "attention");
}
template <class T>
void key_gradients_by_wgmma(const AttentionParams& params, cudaStream_t stream);
template <class T>
void query_gradients_by_wgmma(const AttentionParams& params, cudaStream_t stream);

}  // namespace lamina::ops::cuda
