// Softmax and sigmoid over one token's experts on a CPU. Shared by routing and router losses; included once per SIMD
// target.
#if defined(LAMINA_OPS_MOE_ROUTER_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LAMINA_OPS_MOE_ROUTER_ROWS_INL_H_
#undef LAMINA_OPS_MOE_ROUTER_ROWS_INL_H_
#else
#define LAMINA_OPS_MOE_ROUTER_ROWS_INL_H_
#endif

#include <algorithm>
#include <cmath>

#include "lamina/base/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {
using namespace lamina::HWY_NAMESPACE;  // NOLINT: SIMD helpers of this target

/// Softmax of n > 0 values in place; returns their log-sum-exp.
template <class A>
A softmax_in_place(A* values, int64_t n) {
  const hn::ScalableTag<A> d;
  A most = values[0];
  for (int64_t i = 1; i < n; ++i) most = std::max(most, values[i]);
  auto sums = hn::Zero(d);
  const auto peak = hn::Set(d, most);
  for_vectors(d, n, [&](int64_t i, size_t count) HWY_ATTR {
    const auto e = exp(d, hn::Sub(load_n(d, values + i, count), peak));
    store_n(d, e, values + i, count);
    sums = hn::Add(sums, hn::IfThenElseZero(hn::FirstN(d, count), e));
  });
  const A sum = hn::GetLane(hn::SumOfLanes(d, sums));
  const auto inverse = hn::Set(d, A{1} / sum);
  for_vectors(d, n, [&](int64_t i, size_t count) HWY_ATTR {
    store_n(d, hn::Mul(load_n(d, values + i, count), inverse), values + i, count);
  });
  return most + std::log(sum);
}

template <class A>
void sigmoid_in_place(A* values, int64_t n) {
  const hn::ScalableTag<A> d;
  for_vectors(d, n, [&](int64_t i, size_t count) HWY_ATTR {
    store_n(d, sigmoid(d, load_n(d, values + i, count)), values + i, count);
  });
}

template <class T>
void load_row(const T* from, int64_t n, Accumulate<T>* to) {
  const ComputeTag<T> d;
  for_vectors(d, n, [&](int64_t i, size_t count) HWY_ATTR { store_n(d, load_n(d, from + i, count), to + i, count); });
}

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
