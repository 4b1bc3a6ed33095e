#pragma once

// What happens to a warp's tile of scores between two products on tensor cores: what it sees, bias, dropout. And the
// kernels made of it.

#include "lamina/ops/attention/attention_mma.cuh"

namespace lamina::ops::cuda {

/// The sums of a warp get what the table or the slope says, times `factor`; `query` and `key` are those of the lane's
/// first number, rows are keys where kByKeys.
template <bool kByKeys, int kRowTiles, int kBlocks>
__device__ inline void add_bias(const AttentionParams& p, const HeadBias& bias, float factor, int query, int key,
                                Sums<kRowTiles, kBlocks>& sums) {
  const int distance = query + bias.offset - key;
  if (bias.table == nullptr) {
    if (bias.slope == 0) return;
    const float slope = -bias.slope * factor;
    const auto first = static_cast<float>(distance);
    for_sums<kRowTiles, kBlocks>(sums, [&](float& x, int row, int column) {
      x = fmaf(slope, fabsf(first + static_cast<float>(kByKeys ? column - row : row - column)), x);
    });
    return;
  }
  const auto at = [&](int i, int j) { return bias.table[min(i, p.seq_q - 1) - min(j, p.seq_k - 1)]; };
  constexpr int kSpan = 16 * kRowTiles > 8 * kBlocks ? 16 * kRowTiles : 8 * kBlocks;
  const bool flat = distance - kSpan >= bias.flat_from || distance + kSpan <= -bias.flat_from;
  if (__all_sync(lamina::cuda::kAllLanes, flat)) {
    const float value = at(query, key) * factor;
    for_sums<kRowTiles, kBlocks>(sums, [&](float& x, int, int) { x += value; });
    return;
  }
  for_sums<kRowTiles, kBlocks>(sums, [&](float& x, int row, int column) {
    x = fmaf(at(query + (kByKeys ? column : row), key + (kByKeys ? row : column)), factor, x);
  });
}

/// What a warp sees of a tile: nothing, some or all by range, and whether the pattern has holes in it.
struct WarpView {
  DeviceMask::Coverage range;
  bool holes;
};

/// What a warp knows of its queries [q0, q1): the ranges of the first and the last.
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
  /// For keys [k0, k1), which may lie partly behind the last key. Not kSpecial: ranges say everything.
  template <bool kSpecial>
  __device__ WarpView of(const DeviceMask& mask, int k0, int k1) const {
    using Coverage = DeviceMask::Coverage;
    if (q0 >= q1 || first.begin >= k1 || last.end <= k0) return {Coverage::none, false};
    const Coverage range = last.begin <= k0 && first.end >= k1 ? Coverage::full : Coverage::partial;
    if constexpr (!kSpecial) return {range, false};
    const Coverage found = mask.holes(q0, q1, k0, min(k1, mask.seq_k));
    return {found == Coverage::none ? found : range, found == Coverage::partial};
  }
};

/// Words of dropout's stream for four weights at once, where those of four keys side by side come from one draw: every
/// lane draws one row's, and neighbours exchange halves. {row, row, row + 8, row + 8}, as sums lie; `element` is that
/// of the first of the eight keys for the lane's first row, `below` how much further the row eight below is.
__device__ inline void dropout_words(const RandomKey& key, uint64_t element, uint64_t below, uint32_t (&out)[4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const bool odd = lane % 2 != 0;
  const auto words = philox(key, (element + (odd ? below : 0) + lane % 4 / 2 * 4) / 4);
  const uint32_t got0 = __shfl_xor_sync(lamina::cuda::kAllLanes, odd ? words[0] : words[2], 1);
  const uint32_t got1 = __shfl_xor_sync(lamina::cuda::kAllLanes, odd ? words[1] : words[3], 1);
  out[0] = odd ? got0 : words[0];
  out[1] = odd ? got1 : words[1];
  out[2] = odd ? words[2] : got0;
  out[3] = odd ? words[3] : got1;
}

/// The same where rows are keys and columns queries: four lanes draw for two queries and two runs of four keys, and
/// transpose what they drew. `element` is that of the lane's first query and key; the next query's is `seq_k` further.
__device__ inline void dropout_words_of_keys(const RandomKey& key, uint64_t element, int seq_k, uint32_t (&out)[4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int turn = lane / 4 % 4;
  const uint64_t first = element - turn;  // of the run of four keys
  const auto words = philox(key, (first + (turn & 1) * static_cast<uint64_t>(seq_k) + turn / 2 * 8) / 4);
#pragma unroll
  for (int i = 0; i < 4; ++i) out[i] = words[i];
#pragma unroll
  for (int step = 1; step <= 2; ++step) {
    const bool upper = (turn & step) != 0;
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      const int low = step == 1 ? 2 * pair : pair;
      const int high = low + step;
      const uint32_t got = __shfl_xor_sync(lamina::cuda::kAllLanes, upper ? out[low] : out[high], 4 * step);
      out[low] = upper ? got : out[low];
      out[high] = upper ? out[high] : got;
    }
  }
}

/// A bit per number of a lane's kRowTiles · kBlocks · 4 <= 64: whether dropout keeps its weight. `query` and `key` are
/// those of the lane's first number; rows are keys where kByKeys. A loop rather than copies of the draw for every
/// number.
template <bool kByKeys, int kRowTiles, int kBlocks>
__device__ inline uint64_t kept_bits(const AttentionParams& p, int b, int head, int query, int key) {
  static_assert(kRowTiles * kBlocks * 4 <= 64);
  const RandomKey random{p.dropout.key.seed, p.dropout.key.stream + *p.dropout.stream_offset};
  const uint64_t first = p.dropout_row(b, head, query) + key;
  const auto seq_k = static_cast<uint64_t>(p.seq_k);
  const bool aligned = p.seq_k % 4 == 0;
  uint64_t bits = 0;
#pragma unroll 4
  for (int n = 0; n < kRowTiles * kBlocks; ++n) {
    const int m = n / kBlocks * 16;
    const int c = n % kBlocks * 8;
    const uint64_t element = first + (kByKeys ? c * seq_k + m : m * seq_k + c);
    uint32_t words[4];
    if (!aligned) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const uint64_t at = element + (kByKeys ? i % 2 * seq_k + i / 2 * 8 : i / 2 * 8 * seq_k + i % 2);
        words[i] = dropout_word(random.seed, random.stream, at);
      }
    } else if constexpr (kByKeys) {
      dropout_words_of_keys(random, element, p.seq_k, words);
    } else {
      dropout_words(random, element - static_cast<int>(threadIdx.x) % 4 * 2, 8 * seq_k, words);
    }
    uint32_t four = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) four |= (words[i] < p.dropout.threshold ? 0U : 1U) << i;
    bits |= static_cast<uint64_t>(four) << (4 * n);
  }
  return bits;
}

/// Multiplies what is kept by dropout's factor, the others by 0.
template <int kRowTiles, int kBlocks>
__device__ inline void drop(const AttentionParams& p, uint64_t kept, Sums<kRowTiles, kBlocks>& sums) {
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int n = 0; n < kBlocks; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const bool keep = (kept >> ((m * kBlocks + n) * 4 + i) & 1) != 0;
        sums[m][n][i] = keep ? sums[m][n][i] * p.dropout.factor : 0.0F;
      }
    }
  }
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
/// Whether more than scaling and ranges of keys happens to the scores.
inline bool is_special(const AttentionParams& params) {
  return params.soft_cap > 0 || params.bias != nullptr || params.slopes != nullptr || params.dropout.threshold != 0 ||
         params.scale <= 0 || !params.mask.ranges_suffice;
}
/// Queries of one block of the kernel that makes dq.
inline int mma_query_rows(const AttentionParams& params) { return params.d_qk <= 64 && params.d_v <= 64 ? 128 : 64; }

template <class T>
void forward_by_mma(const AttentionParams& params, cudaStream_t stream);
template <class T>
void key_gradients_by_mma(const AttentionParams& params, cudaStream_t stream);
template <class T>
void query_gradients_by_mma(const AttentionParams& params, cudaStream_t stream);

}  // namespace lamina::ops::cuda
