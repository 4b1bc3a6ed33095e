// Packs panels of bf16 pairs from bf16, or from f32 rounded to nearest even. If the operand is stored along k, a pair
// is two neighbours in a row; if it is stored across k, a pair joins elements of two rows. An odd last number is paired
// with zero.
#if defined(LAMINA_OPS_LINEAR_GEMM_PAIRS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LAMINA_OPS_LINEAR_GEMM_PAIRS_INL_H_
#undef LAMINA_OPS_LINEAR_GEMM_PAIRS_INL_H_
#else
#define LAMINA_OPS_LINEAR_GEMM_PAIRS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstring>

#include "lamina/base/simd-inl.h"
#include "lamina/base/transpose-inl.h"
#include "lamina/ops/linear/gemm/bf16_dot.h"
#include "lamina/ops/linear/gemm/gemm_prefetch.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {
using namespace lamina::HWY_NAMESPACE;  // NOLINT: SIMD helpers of this target

/// Bits of f32 values rounded to bf16, in the upper half of each lane; the lower half is arbitrary. A NaN stays a NaN.
template <class D, class DU = hn::RebindToUnsigned<D>>
HWY_INLINE hn::Vec<DU> bf16_bits(D d, const float* from) {
  const DU du;
  const auto value = hn::LoadU(d, from);
  const auto bits = hn::BitCast(du, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1U));
  const auto rounded = hn::Add(hn::Add(bits, odd), hn::Set(du, 0x7fffU));
  return hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(value)), hn::Or(bits, hn::Set(du, 0x400000U)), rounded);
}
template <class D, class DU = hn::RebindToUnsigned<D>>
HWY_INLINE hn::Vec<DU> bf16_bits(D /*d*/, const bf16* from) {
  const hn::Rebind<uint16_t, D> half;
  const DU du;
  return hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(half, reinterpret_cast<const uint16_t*>(from))));
}

/// Loads a vector of pairs of neighbours.
template <class D>
HWY_INLINE hn::Vec<D> load_pairs(D d, const bf16* from) {
  const hn::Repartition<uint16_t, D> half;
  return hn::BitCast(d, hn::LoadU(half, reinterpret_cast<const uint16_t*>(from)));
}
template <class D>
HWY_INLINE hn::Vec<D> load_pairs(D d, const float* from) {
  const hn::RebindToSigned<D> di;
  const hn::Repartition<uint16_t, D> both;
  const hn::Half<decltype(both)> half;
  const auto lanes = hn::Lanes(d);
  const auto low = hn::BitCast(di, hn::ShiftRight<16>(bf16_bits(d, from)));
  const auto high = hn::BitCast(di, hn::ShiftRight<16>(bf16_bits(d, from + lanes)));
  return hn::BitCast(d, hn::Combine(both, hn::DemoteTo(half, high), hn::DemoteTo(half, low)));
}

template <class S>
HWY_INLINE uint32_t bits_of(S value) {
  const bf16 narrow = convert<bf16>(value);
  uint16_t bits = 0;
  std::memcpy(&bits, &narrow, sizeof bits);
  return bits;
}

/// to[l·width + i] = pair l of row i, for as many rows i as d has lanes. Transposes squares in registers.
template <class D, class S>
void transpose_pairs(D d, const S* from, int64_t ld, int64_t numbers, Bf16Pair* to, int64_t width) {
  constexpr int kSide = static_cast<int>(hn::MaxLanes(d));
  int64_t l = 0;
  for (; 2 * (l + kSide) <= numbers; l += kSide) {
    hn::Vec<D> row[kSide];
#pragma GCC unroll 16
    for (int i = 0; i < kSide; ++i) row[i] = load_pairs(d, from + i * ld + 2 * l);
#pragma GCC unroll 16
    for (int i = 0; i < kSide; ++i) __builtin_prefetch(from + i * ld + 2 * l + kFetchAhead);
    transpose_square(d, row);
#pragma GCC unroll 16
    for (int i = 0; i < kSide; ++i) hn::StoreU(row[i], d, reinterpret_cast<float*>(to + (l + i) * width));
  }
  for (; 2 * l < numbers; ++l) {
    for (int64_t i = 0; i < kSide; ++i) {
      const S* pair = from + i * ld + 2 * l;
      to[l * width + i].bits = bits_of(pair[0]) | (2 * l + 1 < numbers ? bits_of(pair[1]) << 16 : 0);
    }
  }
}

/// Transposes the first rows in squares of up to kSide; returns the number of rows done.
template <int kSide, class S>
int64_t transpose_pair_squares(const S* from, int64_t ld, int64_t count, int64_t numbers, Bf16Pair* to, int64_t width) {
  const hn::CappedTag<float, kSide> d;
  constexpr int kRows = static_cast<int>(hn::MaxLanes(d));
  int64_t i = 0;
  for (; i + kRows <= count; i += kRows) transpose_pairs(d, from + i * ld, ld, numbers, to + i, width);
  if constexpr (kRows > 4) {
    i += transpose_pair_squares<kRows / 2>(from + i * ld, ld, count - i, numbers, to + i, width);
  }
  return i;
}

/// Packs a panel from K-major rows, where number (i, l) is at from[i·ld + l]. `count` of the panel's `width` rows
/// exist.
template <class S>
void pack_pairs_k_major(const S* from, int64_t ld, int64_t count, int64_t numbers, Bf16Pair* to, int64_t width) {
  const int64_t pairs = (numbers + 1) / 2;
  int64_t i = transpose_pair_squares<16>(from, ld, count, numbers, to, width);
  for (; i < count; ++i) {
    const S* row = from + i * ld;
    for (int64_t l = 0; l < pairs; ++l) {
      to[l * width + i].bits = bits_of(row[2 * l]) | (2 * l + 1 < numbers ? bits_of(row[2 * l + 1]) << 16 : 0);
    }
  }
  for (; i < width; ++i) {
    for (int64_t l = 0; l < pairs; ++l) to[l * width + i].bits = 0;
  }
}

/// Packs a panel from rows stored across k, where number (i, l) is at from[l·ld + i].
template <class D, class S>
void pack_pairs_mn_major(D d, const S* from, int64_t ld, int64_t count, int64_t numbers, Bf16Pair* to, int64_t width) {
  const hn::RebindToUnsigned<D> du;
  const auto upper = hn::Set(du, 0xffff0000U);
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t whole = count / lanes * lanes;
  for (int64_t l = 0; l < numbers; l += 2) {
    const S* first = from + l * ld;
    const bool odd = l + 1 == numbers;
    const S* second = odd ? first : first + ld;
    Bf16Pair* out = to + l / 2 * width;
    // Prefetched twice, because CPUs drop prefetches under load.
    for (int64_t i = 0; i < count; i += kCacheLine<S>) {
      __builtin_prefetch(first + 8 * ld + i);
      __builtin_prefetch(first + 9 * ld + i);
      __builtin_prefetch(first + 16 * ld + i, 0, 2);
      __builtin_prefetch(first + 17 * ld + i, 0, 2);
    }
    const auto keep = odd ? hn::Zero(du) : upper;
    for (int64_t i = 0; i < whole; i += lanes) {
      const auto low = hn::ShiftRight<16>(bf16_bits(d, first + i));
      const auto high = hn::And(bf16_bits(d, second + i), keep);
      hn::StoreU(hn::Or(low, high), du, &out[i].bits);
    }
    for (int64_t i = whole; i < count; ++i) out[i].bits = bits_of(first[i]) | (odd ? 0 : bits_of(second[i]) << 16);
    for (int64_t i = count; i < width; ++i) out[i].bits = 0;
  }
}

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
