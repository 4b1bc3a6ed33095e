// Shared by forward and backward of CPU attention: loading rows into padded tiles of the accumulation type, masks, soft
// cap and dropout. Included once per SIMD target.
#if defined(LAMINA_OPS_ATTENTION_CPU_SCORE_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LAMINA_OPS_ATTENTION_CPU_SCORE_TILE_INL_H_
#undef LAMINA_OPS_ATTENTION_CPU_SCORE_TILE_INL_H_
#else
#define LAMINA_OPS_ATTENTION_CPU_SCORE_TILE_INL_H_
#endif

#include <algorithm>

#include "lamina/base/simd-inl.h"
#include "lamina/base/simd_math-inl.h"
#include "lamina/base/simd_philox-inl.h"
#include "lamina/ops/attention/attention_dropout.h"
#include "lamina/ops/attention/attention_mask.h"
#include "lamina/ops/attention/cpu/tile_gemm-inl.h"
#include "lamina/ops/attention/cpu/tile_scratch.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {
using namespace lamina::HWY_NAMESPACE;  // NOLINT: SIMD helpers of this target

template <class A>
int64_t lanes_of() {
  return static_cast<int64_t>(hn::Lanes(hn::ScalableTag<A>()));
}

/// Loads `rows` rows of `width` elements with row stride `stride`, times `factor`, to rows with stride `ld`. Pads with
/// zeros from width to ld, and the number of rows to a multiple of kRowStep.
template <class T, class A = Accumulate<T>>
void load_rows(const T* from, int64_t stride, int64_t rows, int64_t width, A factor, A* to, int64_t ld) {
  const ComputeTag<T> d;
  const auto scale = hn::Set(d, factor);
  for (int64_t r = 0; r < rows; ++r) {
    for_vectors(d, width, [&](int64_t i, size_t count) HWY_ATTR {
      hn::StoreU(hn::Mul(load_n(d, from + r * stride + i, count), scale), d, to + r * ld + i);
    });
  }
  std::fill(to + rows * ld, to + round_up(rows, kRowStep) * ld, A{0});
}

/// Prefetches rows that load_rows() will load later.
template <class T>
void prefetch_rows(const T* from, int64_t stride, int64_t rows, int64_t width) {
  constexpr int64_t kLine = 64 / sizeof(T);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < width; c += kLine) __builtin_prefetch(from + r * stride + c, 0, 2);
  }
}

/// Transposes a tile written by load_rows(): element (r, c) goes to to[c · ld + r]. The rows of `to` are written up to
/// a multiple of the vector length, its columns up to a multiple of kRowStep.
template <class A>
void transpose_rows(const A* from, int64_t from_ld, int64_t rows, int64_t width, A* to, int64_t ld) {
  const hn::Full128<A> d;
  constexpr int64_t kSide = 16 / sizeof(A);
  for (int64_t r = 0; r < rows; r += kSide) {
    for (int64_t c = 0; c < width; c += kSide) {
      const A* at = from + r * from_ld + c;
      A* out = to + c * ld + r;
      const auto a0 = hn::LoadU(d, at);
      const auto a1 = hn::LoadU(d, at + from_ld);
      if constexpr (kSide == 2) {
        hn::StoreU(hn::InterleaveLower(d, a0, a1), d, out);
        hn::StoreU(hn::InterleaveUpper(d, a0, a1), d, out + ld);
      } else {
        const auto a2 = hn::LoadU(d, at + 2 * from_ld);
        const auto a3 = hn::LoadU(d, at + 3 * from_ld);
        const auto low01 = hn::InterleaveLower(d, a0, a1);
        const auto low23 = hn::InterleaveLower(d, a2, a3);
        const auto high01 = hn::InterleaveUpper(d, a0, a1);
        const auto high23 = hn::InterleaveUpper(d, a2, a3);
        hn::StoreU(hn::ConcatLowerLower(d, low23, low01), d, out);
        hn::StoreU(hn::ConcatUpperUpper(d, low23, low01), d, out + ld);
        hn::StoreU(hn::ConcatLowerLower(d, high23, high01), d, out + 2 * ld);
        hn::StoreU(hn::ConcatUpperUpper(d, high23, high01), d, out + 3 * ld);
      }
    }
  }
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V tanh_of(D d, V x) {
  return tanh_pair(d, x).value;
}

/// e^x for finite x <= 0 (or slightly above by rounding); never below the smallest normal number. Faster than
/// exp_flushed: −inf is not handled, and in f32 the range reduction is shorter, with an error that grows where the
/// result vanishes.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp_nonpositive(D d, V x) {
  if constexpr (std::is_same_v<hn::TFromD<D>, float>) {
    const hn::RebindToUnsigned<D> du;
    const V round = hn::Set(d, 12582912.0F);  // 1.5 · 2^23: adding it leaves the integer part in the low bits
    const V cut = hn::Max(hn::Set(d, -87.0F), x);
    const V n = hn::MulAdd(cut, hn::Set(d, 1.44269504F), round);
    const V r = hn::NegMulAdd(hn::Sub(n, round), hn::Set(d, 0.693147181F), cut);
    V e = hn::MulAdd(hn::Set(d, 0.00139262508F), r, hn::Set(d, 0.00836323288F));  // Chebyshev fit, error 2^-27
    e = hn::MulAdd(e, r, hn::Set(d, 0.0416665542F));
    e = hn::MulAdd(e, r, hn::Set(d, 0.166665767F));
    e = hn::MulAdd(e, r, hn::Set(d, 0.5F));
    e = hn::MulAdd(e, r, hn::Set(d, 1.0F));
    e = hn::MulAdd(e, r, hn::Set(d, 1.0F));
    return hn::BitCast(d, hn::Add(hn::BitCast(du, e), hn::ShiftLeft<23>(hn::BitCast(du, n))));
  } else {
    return exp_flushed(d, x);
  }
}

/// Mask of lanes [begin, end) of a vector. The bounds may lie outside the vector.
template <class D>
HWY_INLINE hn::Mask<D> lanes_between(D d, int64_t begin, int64_t end) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto clamp = [lanes](int64_t n) { return static_cast<size_t>(std::clamp<int64_t>(n, 0, lanes)); };
  return hn::AndNot(hn::FirstN(d, clamp(begin)), hn::FirstN(d, clamp(end)));
}

/// dropout_patch_mask() of consecutive patches of a row, from `column` on: one patch per 64-bit lane, in its lowest 16
/// bits.
template <class D>
HWY_INLINE hn::Vec<D> dropout_patch_masks(D d, const RandomKey& key, uint32_t threshold, uint32_t row,
                                          uint32_t column) {
  using V = hn::Vec<D>;
  V kept = hn::Set(d, ~uint64_t{0});
  V x0 = hn::Iota(d, uint64_t{column});
  V x1 = hn::Set(d, uint64_t{row});
  V x2 = hn::Set(d, key.stream);
  V x3 = hn::Set(d, key.stream >> 32);
  const auto compare = [&](int first, V w0, V w1, V w2, V w3) HWY_ATTR {
    const auto with = [&](int bit, V word)
                          HWY_ATTR { kept = (threshold >> bit & 1) != 0 ? hn::And(kept, word) : hn::Or(kept, word); };
    with(first, w0);
    with(first + 1, w1);
    with(first + 2, w2);
    with(first + 3, w3);
  };
  philox_rounds<0, kDropoutRounds>(d, key.seed, x0, x1, x2, x3);
  V low0 = x0;
  V low1 = x1;
  V low2 = x2;
  V low3 = x3;
  philox_rounds<kDropoutRounds, kDropoutLowRounds>(d, key.seed, low0, low1, low2, low3);
  compare(0, low0, low1, low2, low3);
  kept = hn::ShiftLeft<16>(kept);
  compare(4, low0, low1, low2, low3);
  compare(8, x0, x1, x2, x3);
  kept = hn::ShiftRight<16>(kept);
  compare(12, x0, x1, x2, x3);
  return hn::And(kept, hn::Set(d, uint64_t{0xffff}));
}

/// Dropout factors of weights. Generates the mask of 16 queries × 64 keys at once and keeps it for callers that go
/// query by query.
template <class A>
class Dropout {
 public:
  static constexpr int64_t kKeys = 64;

  Dropout(const AttentionOptions& options, int64_t seq_q)
      : key_(options.dropout_key),
        threshold_(attention_dropout_threshold(options.dropout)),
        factor_(static_cast<A>(attention_dropout_factor(threshold_))),
        rows_(dropout_patches(seq_q)) {}
  bool active() const { return threshold_ != 0; }

  /// Writes `factor` or 0 for `count` keys from `key` on, all in one aligned block of kKeys. `head` counts over all
  /// batch rows. `out` must have room for kKeys elements.
  void fill(int64_t head, int64_t query, int64_t key, int64_t count, A* out) {
    const int64_t row = (head * rows_ + dropout_patch(query)) / 4 * 4;
    const int64_t first = key / kKeys * kKeys;
    if (row != row_ || first != first_) {
      row_ = row;
      first_ = first;
      for (int64_t r = 0; r < 4; ++r) draw(static_cast<uint32_t>(row + r), drawn_ + 2 * r);
    }
    const hn::ScalableTag<A> d;
    uint64_t bits = drawn_[query % 16] >> (key - first);
    for (int64_t i = 0; i < count; i += lanes_of<A>()) {
      const uint64_t part = bits >> i;
      const auto keep = hn::LoadMaskBits(d, reinterpret_cast<const uint8_t*>(&part));
      hn::StoreU(hn::IfThenElseZero(keep, hn::Set(d, factor_)), d, out + i);
    }
  }

 private:
  /// Generates one bit for each of kKeys keys from first_ on, for the four queries of a patch row: to[0], to[1], to[8],
  /// to[9].
  void draw(uint32_t row, uint64_t* to) const {
    constexpr int64_t kColumns = kKeys / 4;
    const hn::CappedTag<uint64_t, kColumns> d;
    using V = hn::Vec<decltype(d)>;
    V q0 = hn::Zero(d);
    V q1 = q0;
    V q8 = q0;
    V q9 = q0;
    for (int64_t c = 0; c < kColumns; c += static_cast<int64_t>(hn::Lanes(d))) {
      const V kept = dropout_patch_masks(d, key_, threshold_, row, static_cast<uint32_t>(dropout_patch(first_) + c));
      const V column = hn::Iota(d, static_cast<uint64_t>(c));
      const V first_of_16 = hn::ShiftLeft<4>(hn::ShiftRight<2>(column));
      const V place = hn::Add(first_of_16, hn::ShiftLeft<1>(hn::And(column, hn::Set(d, uint64_t{3}))));
      const auto add = [&](V& query, V bits) HWY_ATTR {
        const V low = hn::And(bits, hn::Set(d, uint64_t{3}));
        const V high = hn::And(hn::ShiftLeft<4>(bits), hn::Set(d, uint64_t{0x300}));
        query = hn::Or(query, hn::Shl(hn::Or(low, high), place));
      };
      add(q0, kept);
      add(q8, hn::ShiftRight<2>(kept));
      add(q1, hn::ShiftRight<8>(kept));
      add(q9, hn::ShiftRight<10>(kept));
    }
    to[0] = hn::GetLane(hn::SumOfLanes(d, q0));
    to[1] = hn::GetLane(hn::SumOfLanes(d, q1));
    to[8] = hn::GetLane(hn::SumOfLanes(d, q8));
    to[9] = hn::GetLane(hn::SumOfLanes(d, q9));
  }

  RandomKey key_;
  uint32_t threshold_;
  A factor_;
  int64_t rows_;        // patch rows per head
  int64_t row_ = -1;    // first patch row of the stored mask
  int64_t first_ = 0;   // first key of the stored mask
  uint64_t drawn_[16];  // the stored mask: one word of 64 keys per query
};

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
