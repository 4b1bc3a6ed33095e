#pragma once

// What happens to a warp's tile of scores between two products on tensor cores: what it sees, bias, dropout. And the
// kernels made of it.

#include "lamina/ops/attention/attention_mma.cuh"

namespace lamina::ops::cuda {

/// What happens to scores between the products, as far as kernels are compiled for it.
enum class ScoreWork {
  plain,   // scaled, and seen in ranges
  shaped,  // soft cap, bias and patterns with holes, too
  dropped  // and dropout
};

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

/// Which of a lane's weights dropout keeps. Four words come from one draw and belong to four keys side by side, which
/// several lanes have: each lane draws for some of the rows and all exchange what became of it, a bit per number. That
/// is made without a branch, so that it may mix with a product's instructions, and wrong where a run of four keys does
/// not begin at a draw or the counters pass 2³²: complete() then draws each number on its own.
template <bool kByKeys, int kRowTiles, int kBlocks>
class KeptBits {
 public:
  /// `place` is that of the lane's first number; rows are keys where kByKeys.
  __device__ KeptBits(const AttentionParams& p, uint64_t stream, const ScorePlace& place) {
    if constexpr (kByKeys) {
      draw_by_keys(p, stream, place);
    } else {
      draw_by_queries(p, stream, place);
    }
  }
  /// Before the first at().
  __device__ void complete(const AttentionParams& p, uint64_t stream, const ScorePlace& place) {
    if (__any_sync(lamina::cuda::kAllLanes, p.seq_k % 4 != 0 || passes_)) bits_ = draw_singly(p, stream, place);
  }
  __device__ bool at(int m, int n, int i) const { return (bits_ >> index(m, n, i) & 1) != 0; }

 private:
  static constexpr bool kRowsDrawn = kByKeys && kRowTiles == 2;
  static_assert(kByKeys ? kBlocks == 4 : kBlocks <= 8);

  /// Where the exchanges leave the bit of a number.
  __device__ static constexpr int index(int m, int n, int i) {
    return kRowsDrawn ? (2 * n + i % 2) * 4 + 2 * m + i / 2 : (m * 8 + n) * 4 + i;
  }

  /// Adds the bits of the draw `further` behind `first`, as nibble `nibble`.
  __device__ void draw(const AttentionParams& p, uint64_t stream, uint64_t first, uint32_t further, int nibble,
                       uint32_t& bits) {
    const uint32_t low = static_cast<uint32_t>(first) + further;
    passes_ |= low < further;
    const PhiloxWords words = philox(p.dropout.round_keys, stream, (first >> 32 << 32) | low);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      asm("{\n.reg .pred kept;\nsetp.ge.u32 kept, %1, %2;\n@kept or.b32 %0, %0, %3;\n}\n"
          : "+r"(bits)
          : "r"(words[i]), "r"(p.dropout.threshold), "r"(1U << (4 * nibble + i)));
    }
  }

  /// Runs of four keys are those of two lanes: the even one draws for the upper rows of 16, the odd one for the lower.
  __device__ void draw_by_queries(const AttentionParams& p, uint64_t stream, const ScorePlace& place) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const bool odd = lane % 2 != 0;
    const uint64_t row = p.dropout_row(place.b, place.head, place.query + (odd ? 8 : 0));
    const uint64_t first = (row + (place.key - lane % 4 * 2)) / 4 + lane % 4 / 2;
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
      uint32_t own = 0;
#pragma unroll
      for (int n = 0; n < kBlocks; ++n) {
        draw(p, stream, first + m * 4 * static_cast<int64_t>(p.seq_k), static_cast<uint32_t>(2 * n), n, own);
      }
      const uint32_t got = __shfl_xor_sync(lamina::cuda::kAllLanes, own, 1);
      constexpr uint32_t kPairs = 0x33333333U;
      const uint32_t upper = odd ? got >> 2 : own;
      const uint32_t lower = odd ? own : got << 2;
      bits_ |= static_cast<uint64_t>((upper & kPairs) | (lower & ~kPairs)) << (32 * m);
    }
  }

  /// Runs of four keys are those of four lanes: lane n of them draws the n-th of four rows, or of two rows for two
  /// queries.
  __device__ void draw_by_keys(const AttentionParams& p, uint64_t stream, const ScorePlace& place) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int turn = lane / 4 % 4;
    const int query = place.query + (kRowsDrawn ? 0 : turn % 2);
    const int key = place.key - turn + 8 * (kRowsDrawn ? turn : turn / 2);
    const uint64_t first = (p.dropout_row(place.b, place.head, query) + key) / 4;
    const auto step = static_cast<uint32_t>(p.seq_k / 4);
    uint32_t own = 0;
    constexpr int kDraws = kRowsDrawn ? 2 * kBlocks : kBlocks;
#pragma unroll
    for (int n = 0; n < kDraws; ++n) {
      draw(p, stream, first, (kRowsDrawn ? n / 2 * 8 + n % 2 : n * 8) * step, n, own);
    }
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      const uint32_t got = __shfl_sync(lamina::cuda::kAllLanes, own, (lane & ~12) | n << 2);
      bits_ |= (got >> turn & 0x11111111U) << n;
    }
  }

  __device__ __noinline__ static uint64_t draw_singly(const AttentionParams& p, uint64_t stream,
                                                      const ScorePlace& place) {
    uint64_t bits = 0;
#pragma unroll 1
    for (int n = 0; n < kRowTiles * kBlocks * 4; ++n) {
      const int row = n / 4 / kBlocks * 16 + n % 4 / 2 * 8;
      const int column = n / 4 % kBlocks * 8 + n % 2;
      const uint64_t element = p.dropout_row(place.b, place.head, place.query + (kByKeys ? column : row)) +
                               static_cast<uint64_t>(place.key + (kByKeys ? row : column));
      const bool kept = philox_word({p.dropout.key.seed, stream}, element) >= p.dropout.threshold;
      bits |= static_cast<uint64_t>(kept) << index(n / 4 / kBlocks, n / 4 % kBlocks, n % 4);
    }
    return bits;
  }

  uint64_t bits_ = 0;
  bool passes_ = false;
};

/// In the place of KeptBits where all are kept.
struct NothingDropped {
  __device__ NothingDropped(const AttentionParams&, uint64_t, const ScorePlace&) {}
  __device__ void complete(const AttentionParams&, uint64_t, const ScorePlace&) {}
  __device__ bool at(int, int, int) const { return true; }
};

template <ScoreWork kWork, bool kByKeys, int kRowTiles, int kBlocks>
using KeptOf = std::conditional_t<kWork == ScoreWork::dropped, KeptBits<kByKeys, kRowTiles, kBlocks>, NothingDropped>;

/// The stream weights are dropped by.
template <ScoreWork kWork>
__device__ inline uint64_t dropout_stream(const AttentionParams& p) {
  return kWork == ScoreWork::dropped ? p.dropout.key.stream + *p.dropout.stream_offset : 0;
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
  if (params.dropout.threshold != 0) return ScoreWork::dropped;
  const bool shaped = params.soft_cap > 0 || params.bias != nullptr || params.slopes != nullptr || params.scale <= 0 ||
                      !params.mask.ranges_suffice;
  return shaped ? ScoreWork::shaped : ScoreWork::plain;
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

}  // namespace lamina::ops::cuda
