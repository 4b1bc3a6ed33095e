// Sums in a fixed order, so that results are bit-identical between runs.
#if defined(LAMINA_BASE_SIMD_SUM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LAMINA_BASE_SIMD_SUM_INL_H_
#undef LAMINA_BASE_SIMD_SUM_INL_H_
#else
#define LAMINA_BASE_SIMD_SUM_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>

#include "lamina/base/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::HWY_NAMESPACE {

inline constexpr int kSums = 4;

/// Sums term(i, count, k) over [0, n) in kSums accumulators. k, a compile-time constant, is the accumulator's index.
template <class D, class F>
HWY_INLINE hn::TFromD<D> sum_vectors(D d, int64_t n, const F& term) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto whole = static_cast<size_t>(lanes);
  auto s0 = hn::Zero(d);
  auto s1 = s0;
  auto s2 = s0;
  auto s3 = s0;
  int64_t i = 0;
  for (; i + kSums * lanes <= n; i += kSums * lanes) {
    s0 = hn::Add(s0, term(i, whole, 0));
    s1 = hn::Add(s1, term(i + lanes, whole, 1));
    s2 = hn::Add(s2, term(i + 2 * lanes, whole, 2));
    s3 = hn::Add(s3, term(i + 3 * lanes, whole, 3));
  }
  for (; i < n; i += lanes) s0 = hn::Add(s0, term(i, static_cast<size_t>(std::min(lanes, n - i)), 0));
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
}

}  // namespace lamina::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
