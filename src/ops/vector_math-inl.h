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

/// 2^x, held within the range of normal numbers; NaN stays NaN. In f32 about half the work of vector_exp: a rounded
/// integer goes into the exponent, and the rest, in [-1/2, 1/2], into a polynomial through the Chebyshev points
/// (relative error 2e-9).
HWY_INLINE hn::Vec<hn::ScalableTag<float>> vector_exp2(hn::ScalableTag<float> d, hn::Vec<hn::ScalableTag<float>> x) {
  const hn::RebindToSigned<decltype(d)> di;
  x = hn::Min(hn::Set(d, 127.0F), hn::Max(hn::Set(d, -126.0F), x));  // in this order a NaN stays one
  const auto whole = hn::Round(x);
  const auto r = hn::Sub(x, whole);
  auto p = hn::Set(d, 0.000154614447F);
  p = hn::MulAdd(p, r, hn::Set(d, 0.001340042818F));
  p = hn::MulAdd(p, r, hn::Set(d, 0.009618056679F));
  p = hn::MulAdd(p, r, hn::Set(d, 0.05550327227F));
  p = hn::MulAdd(p, r, hn::Set(d, 0.2402265092F));
  p = hn::MulAdd(p, r, hn::Set(d, 0.6931472067F));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0F));
  return hn::BitCast(d, hn::Add(hn::BitCast(di, p), hn::ShiftLeft<23>(hn::ConvertTo(di, whole))));
}
HWY_INLINE hn::Vec<hn::ScalableTag<double>> vector_exp2(hn::ScalableTag<double> d, hn::Vec<hn::ScalableTag<double>> x) {
  return vector_exp(d, hn::Mul(x, hn::Set(d, 0.69314718055994530942)));
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
