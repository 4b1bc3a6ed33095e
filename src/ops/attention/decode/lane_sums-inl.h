// Horizontal sums of SIMD vectors, four at a time.
#if defined(LAMINA_OPS_ATTENTION_DECODE_LANE_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LAMINA_OPS_ATTENTION_DECODE_LANE_SUMS_INL_H_
#undef LAMINA_OPS_ATTENTION_DECODE_LANE_SUMS_INL_H_
#else
#define LAMINA_OPS_ATTENTION_DECODE_LANE_SUMS_INL_H_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Adds the 128-bit blocks of a vector, lane by lane, and stores the sum.
template <class D>
HWY_INLINE void store_block_sum(D d, hn::Vec<D> v, hn::TFromD<D>* out) {
  if constexpr (hn::MaxLanes(D()) * sizeof(hn::TFromD<D>) > 16) {
    const hn::Half<D> half;
    store_block_sum(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)), out);
  } else {
    hn::StoreU(v, d, out);
  }
}

/// Stores the horizontal sum of each of four vectors.
template <class D>
HWY_INLINE void store_four_sums(D d, const hn::Vec<D>* v, hn::TFromD<D>* out) {
  if constexpr (sizeof(hn::TFromD<D>) == 4) {
    const hn::Repartition<double, D> pairs;
    const auto v01 =
        hn::BitCast(pairs, hn::Add(hn::InterleaveLower(d, v[0], v[1]), hn::InterleaveUpper(d, v[0], v[1])));
    const auto v23 =
        hn::BitCast(pairs, hn::Add(hn::InterleaveLower(d, v[2], v[3]), hn::InterleaveUpper(d, v[2], v[3])));
    const auto low = hn::BitCast(d, hn::InterleaveLower(pairs, v01, v23));
    const auto high = hn::BitCast(d, hn::InterleaveUpper(pairs, v01, v23));
    store_block_sum(d, hn::Add(low, high), out);
  } else {
    for (int i = 0; i < 4; ++i) out[i] = hn::GetLane(hn::SumOfLanes(d, v[i]));
  }
}

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
