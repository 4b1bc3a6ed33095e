// The transcendental functions of the expert and state-space kernels, in one place. Included once per target.
#if defined(LAMINA_OPS_VECTOR_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LAMINA_OPS_VECTOR_MATH_INL_H_
#undef LAMINA_OPS_VECTOR_MATH_INL_H_
#else
#define LAMINA_OPS_VECTOR_MATH_INL_H_
#endif

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include "lamina/base/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::HWY_NAMESPACE {

/// e^x for every x: 0 and infinity at the ends, NaN stays NaN.
template <class D>
HWY_INLINE hn::Vec<D> vector_exp(D d, hn::Vec<D> x) {
  using T = hn::TFromD<D>;
  const auto high = hn::Set(d, static_cast<T>(sizeof(T) == 4 ? 104.0 : 720.0));
  const auto y = hn::Exp(d, hn::IfThenElse(hn::Gt(x, high), high, x));
  return hn::IfThenElse(hn::Eq(x, x), y, x);
}

/// 1 / (1 + e^-x)
template <class D>
HWY_INLINE hn::Vec<D> vector_sigmoid(D d, hn::Vec<D> x) {
  const auto one = hn::Set(d, hn::TFromD<D>{1});
  return hn::Div(one, hn::Add(one, vector_exp(d, hn::Neg(x))));
}

/// log(1 + e^x) = max(x, 0) + log1p(e^-|x|)
template <class D>
HWY_INLINE hn::Vec<D> vector_softplus(D d, hn::Vec<D> x) {
  const auto tail = hn::Log1p(d, vector_exp(d, hn::Neg(hn::Abs(x))));
  const auto y = hn::Add(hn::Max(x, hn::Zero(d)), tail);
  return hn::IfThenElse(hn::Eq(x, x), y, x);
}

/// d/dx x·sigmoid(x), given s = sigmoid(x).
template <class D>
HWY_INLINE hn::Vec<D> silu_slope(D d, hn::Vec<D> x, hn::Vec<D> s) {
  const auto one = hn::Set(d, hn::TFromD<D>{1});
  return hn::Mul(s, hn::MulAdd(x, hn::Sub(one, s), one));
}

}  // namespace lamina::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
