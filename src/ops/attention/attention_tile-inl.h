// What the attention kernels share: moving rows into padded tiles of the accumulation type, masks, the soft cap and
// dropout. Included once per target.
#if defined(LAMINA_OPS_ATTENTION_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LAMINA_OPS_ATTENTION_TILE_INL_H_
#undef LAMINA_OPS_ATTENTION_TILE_INL_H_
#else
#define LAMINA_OPS_ATTENTION_TILE_INL_H_
#endif

#include <algorithm>

#include "lamina/base/philox.h"
#include "lamina/base/simd-inl.h"
#include "lamina/base/simd_math-inl.h"
#include "lamina/base/simd_philox-inl.h"
#include "lamina/ops/attention/attention_mask.h"
#include "lamina/ops/attention/tile_gemm-inl.h"
#include "lamina/ops/attention/tile_scratch.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {
using namespace lamina::HWY_NAMESPACE;  // NOLINT: the vector helpers of this target

template <class A>
int64_t lanes_of() {
  return static_cast<int64_t>(hn::Lanes(hn::ScalableTag<A>()));
}

/// factor · `rows` rows of `width` elements, `stride` apart, into rows `ld` apart; zeros from width to ld and in the
/// rows up to a multiple of kRowStep.
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

/// Asks for rows that load_rows will want soon, so that they come while something else is computed.
template <class T>
void prefetch_rows(const T* from, int64_t stride, int64_t rows, int64_t width) {
  constexpr int64_t kLine = 64 / sizeof(T);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < width; c += kLine) __builtin_prefetch(from + r * stride + c, 0, 2);
  }
}

/// The rows of a tile as load_rows leaves it, transposed: to[c · ld + r]. Writes rows of `to` up to a multiple of the
/// vector length and columns up to a multiple of kRowStep.
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

/// e^x for finite x <= 0 (a rounding above it too), at least the smallest normal number: exp_flushed without its care
/// for −inf, and in f32 with a shorter reduction whose error grows as the result vanishes.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp_of_seen(D d, V x) {
  if constexpr (std::is_same_v<hn::TFromD<D>, float>) {
    const hn::RebindToUnsigned<D> du;
    const V round = hn::Set(d, 12582912.0F);  // 1.5 · 2^23: adding it leaves the integer in the low bits
    const V cut = hn::Max(hn::Set(d, -87.0F), x);
    const V n = hn::MulAdd(cut, hn::Set(d, 1.44269504F), round);
    const V r = hn::NegMulAdd(hn::Sub(n, round), hn::Set(d, 0.693147181F), cut);
    V e = hn::MulAdd(hn::Set(d, 0.00139262508F), r, hn::Set(d, 0.00836323288F));  // a Chebyshev fit, to 2^-27
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

/// Lanes [begin, end) of a vector; the bounds may lie outside it.
template <class D>
HWY_INLINE hn::Mask<D> lanes_between(D d, int64_t begin, int64_t end) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto clamp = [lanes](int64_t n) { return static_cast<size_t>(std::clamp<int64_t>(n, 0, lanes)); };
  return hn::AndNot(hn::FirstN(d, clamp(begin)), hn::FirstN(d, clamp(end)));
}

/// Which weights dropout keeps, and what it multiplies them by.
template <class A>
struct Dropout {
  static constexpr int64_t kMost = 64;  // weights drawn at once

  RandomKey key;
  uint32_t threshold = 0;
  A factor = 1;

  explicit Dropout(const AttentionOptions& options)
      : key(options.dropout_key),
        threshold(dropout_threshold(options.dropout)),
        factor(static_cast<A>(1.0 / (1.0 - options.dropout))) {}
  bool active() const { return threshold != 0; }

  /// `factor` or 0 for `count` <= kMost elements of the stream from `first` on; `out` has room for kMost.
  void fill(uint64_t first, int64_t count, A* out) const {
    uint32_t words[kMost + 64];
    const uint64_t offset = first % 4;
    philox_words(key, static_cast<int64_t>(first - offset), count + static_cast<int64_t>(offset), words);
    const uint32_t* word = words + offset;
    if constexpr (std::is_same_v<A, float>) {
      const hn::ScalableTag<float> d;
      const hn::ScalableTag<uint32_t> du;
      const auto least = hn::Set(du, threshold);
      for (int64_t i = 0; i < count; i += lanes_of<A>()) {
        const auto drop = hn::RebindMask(d, hn::Lt(hn::LoadU(du, word + i), least));
        hn::StoreU(hn::IfThenZeroElse(drop, hn::Set(d, factor)), d, out + i);
      }
    } else {
      for (int64_t i = 0; i < count; ++i) out[i] = word[i] >= threshold ? factor : A{0};
    }
  }
};

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
