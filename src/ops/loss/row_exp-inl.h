// Exponentials over one row: the maximum, Σ exp(x − max), and log Σ exp(x).
#if defined(LAMINA_OPS_LOSS_ROW_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LAMINA_OPS_LOSS_ROW_EXP_INL_H_
#undef LAMINA_OPS_LOSS_ROW_EXP_INL_H_
#else
#define LAMINA_OPS_LOSS_ROW_EXP_INL_H_
#endif

#include <hwy/highway.h>

#include <cmath>
#include <limits>

#include "lamina/base/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {
using namespace lamina::HWY_NAMESPACE;  // NOLINT: SIMD helpers of this target

/// load_n() that fills the unused lanes with the lowest number, which does not affect a maximum.
template <class D, class T>
HWY_INLINE hn::Vec<D> load_n_low(D d, const T* from, size_t count) {
  const auto value = load_n(d, from, count);
  if (HWY_LIKELY(count == hn::Lanes(d))) return value;
  return hn::IfThenElse(hn::FirstN(d, count), value, hn::Set(d, -std::numeric_limits<hn::TFromD<D>>::infinity()));
}

template <class T>
HWY_INLINE Accumulate<T> row_max(const T* x, int64_t n) {
  const ComputeTag<T> d;
  auto most = hn::Set(d, -std::numeric_limits<Accumulate<T>>::infinity());
  for_vectors(d, n, [&](int64_t i, size_t count) HWY_ATTR { most = hn::Max(most, load_n_low(d, x + i, count)); });
  return hn::GetLane(hn::MaxOfLanes(d, most));
}

/// Σ exp(x − shift); for a row of only −inf, shift is taken as 0.
template <class T>
HWY_INLINE Accumulate<T> row_exp_sum(const T* x, int64_t n, Accumulate<T> shift) {
  const ComputeTag<T> d;
  const auto away = hn::Set(d, shift);
  auto sum = hn::Zero(d);
  for_vectors(d, n, [&](int64_t i, size_t count) HWY_ATTR {
    sum = hn::Add(sum, exp_flushed(d, hn::Sub(load_n_low(d, x + i, count), away)));
  });
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
