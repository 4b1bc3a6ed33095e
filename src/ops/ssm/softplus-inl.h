// softplus for the step sizes of the scans. Included once per SIMD target.
#if defined(LAMINA_OPS_SSM_SOFTPLUS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LAMINA_OPS_SSM_SOFTPLUS_INL_H_
#undef LAMINA_OPS_SSM_SOFTPLUS_INL_H_
#else
#define LAMINA_OPS_SSM_SOFTPLUS_INL_H_
#endif

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include "lamina/base/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::HWY_NAMESPACE {

/// log(1 + e^x) = max(x, 0) + log1p(e^-|x|)
template <class D>
HWY_INLINE hn::Vec<D> softplus(D d, hn::Vec<D> x) {
  const auto tail = hn::Log1p(d, exp(d, hn::Neg(hn::Abs(x))));
  const auto y = hn::Add(hn::Max(x, hn::Zero(d)), tail);
  return hn::IfThenElse(hn::Eq(x, x), y, x);
}

}  // namespace lamina::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
