// Activations as linear applies them to vectors, and their derivatives with respect to the argument.
#if defined(LAMINA_OPS_LINEAR_FUSED_ACTIVATION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LAMINA_OPS_LINEAR_FUSED_ACTIVATION_INL_H_
#undef LAMINA_OPS_LINEAR_FUSED_ACTIVATION_INL_H_
#else
#define LAMINA_OPS_LINEAR_FUSED_ACTIVATION_INL_H_
#endif

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include <cmath>

#include "lamina/base/simd-inl.h"
#include "lamina/ops/activation/activation.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {
using namespace lamina::HWY_NAMESPACE;  // NOLINT: the vector helpers of this target

template <class D>
HWY_INLINE hn::Vec<D> vector_erf(D d, hn::Vec<D> x) {
  HWY_ALIGN hn::TFromD<D> lanes[hn::MaxLanes(d)];
  hn::Store(x, d, lanes);
  for (size_t i = 0; i < hn::Lanes(d); ++i) lanes[i] = std::erf(lanes[i]);
  return hn::Load(d, lanes);
}

template <class D>
HWY_INLINE hn::Vec<D> vector_sigmoid(D d, hn::Vec<D> x) {
  using T = hn::TFromD<D>;
  const auto one = hn::Set(d, T{1});
  return hn::Div(one, hn::Add(one, hn::Exp(d, hn::Min(hn::Neg(x), hn::Set(d, T{88})))));
}

inline constexpr double kGeluSlope = 0.7978845608028654;  // sqrt(2/π)
inline constexpr double kGeluCubic = 0.044715;
inline constexpr double kSeluScale = 1.0507009873554805;
inline constexpr double kSeluAlpha = 1.6732632423543772;

template <Activation kKind, class D>
HWY_INLINE hn::Vec<D> activate(D d, hn::Vec<D> z) {
  using T = hn::TFromD<D>;
  const auto zero = hn::Zero(d);
  const auto set = [&](double value) HWY_ATTR { return hn::Set(d, static_cast<T>(value)); };
  if constexpr (kKind == Activation::relu) return hn::Max(z, zero);
  if constexpr (kKind == Activation::relu2) return hn::Mul(hn::Max(z, zero), hn::Max(z, zero));
  if constexpr (kKind == Activation::sigmoid) return vector_sigmoid(d, z);
  if constexpr (kKind == Activation::silu) return hn::Mul(z, vector_sigmoid(d, z));
  if constexpr (kKind == Activation::tanh) return hn::Tanh(d, z);
  if constexpr (kKind == Activation::elu) return hn::IfThenElse(hn::Gt(z, zero), z, hn::Expm1(d, hn::Min(z, zero)));
  if constexpr (kKind == Activation::selu) {
    const auto below = hn::Mul(set(kSeluAlpha), hn::Expm1(d, hn::Min(z, zero)));
    return hn::Mul(set(kSeluScale), hn::IfThenElse(hn::Gt(z, zero), z, below));
  }
  if constexpr (kKind == Activation::gelu) {
    const auto half = hn::Mul(set(0.5), z);
    return hn::MulAdd(half, vector_erf(d, hn::Mul(z, set(0.7071067811865476))), half);
  }
  if constexpr (kKind == Activation::gelu_tanh) {
    const auto half = hn::Mul(set(0.5), z);
    const auto inner = hn::Mul(hn::Mul(set(kGeluSlope), z), hn::MulAdd(set(kGeluCubic), hn::Mul(z, z), set(1)));
    return hn::MulAdd(half, hn::Tanh(d, inner), half);
  }
  return z;
}

template <Activation kKind, class D>
HWY_INLINE hn::Vec<D> activate_slope(D d, hn::Vec<D> z) {
  using T = hn::TFromD<D>;
  const auto zero = hn::Zero(d);
  const auto set = [&](double value) HWY_ATTR { return hn::Set(d, static_cast<T>(value)); };
  const auto one = set(1);
  if constexpr (kKind == Activation::relu) return hn::IfThenElseZero(hn::Gt(z, zero), one);
  if constexpr (kKind == Activation::relu2) return hn::Mul(set(2), hn::Max(z, zero));
  if constexpr (kKind == Activation::sigmoid) {
    const auto s = vector_sigmoid(d, z);
    return hn::Mul(s, hn::Sub(one, s));
  }
  if constexpr (kKind == Activation::silu) {
    const auto s = vector_sigmoid(d, z);
    return hn::Mul(s, hn::MulAdd(z, hn::Sub(one, s), one));
  }
  if constexpr (kKind == Activation::tanh) {
    const auto t = hn::Tanh(d, z);
    return hn::NegMulAdd(t, t, one);
  }
  if constexpr (kKind == Activation::elu) return hn::IfThenElse(hn::Gt(z, zero), one, hn::Exp(d, hn::Min(z, zero)));
  if constexpr (kKind == Activation::selu) {
    const auto below = hn::Mul(set(kSeluAlpha), hn::Exp(d, hn::Min(z, zero)));
    return hn::Mul(set(kSeluScale), hn::IfThenElse(hn::Gt(z, zero), one, below));
  }
  if constexpr (kKind == Activation::gelu) {
    const auto cdf = hn::MulAdd(set(0.5), vector_erf(d, hn::Mul(z, set(0.7071067811865476))), set(0.5));
    const auto density = hn::Mul(set(0.3989422804014327), hn::Exp(d, hn::Mul(hn::Mul(z, z), set(-0.5))));
    return hn::MulAdd(z, density, cdf);
  }
  if constexpr (kKind == Activation::gelu_tanh) {
    const auto square = hn::Mul(z, z);
    const auto inner = hn::Mul(hn::Mul(set(kGeluSlope), z), hn::MulAdd(set(kGeluCubic), square, one));
    const auto t = hn::Tanh(d, inner);
    const auto slope = hn::Mul(set(kGeluSlope), hn::MulAdd(set(3 * kGeluCubic), square, one));
    const auto half = set(0.5);
    const auto bend = hn::Mul(hn::Mul(half, z), hn::Mul(hn::NegMulAdd(t, t, one), slope));
    return hn::Add(hn::MulAdd(half, t, half), bend);
  }
  return one;
}

template <Activation kKind>
struct ActivationTag {
  static constexpr Activation kind = kKind;
};

/// fn(ActivationTag<kind>{}), so that the choice is made outside the loops.
template <class F>
void visit_activation(Activation kind, const F& fn) {
  switch (kind) {
    case Activation::none: fn(ActivationTag<Activation::none>{}); break;
    case Activation::relu: fn(ActivationTag<Activation::relu>{}); break;
    case Activation::gelu: fn(ActivationTag<Activation::gelu>{}); break;
    case Activation::gelu_tanh: fn(ActivationTag<Activation::gelu_tanh>{}); break;
    case Activation::silu: fn(ActivationTag<Activation::silu>{}); break;
    case Activation::elu: fn(ActivationTag<Activation::elu>{}); break;
    case Activation::selu: fn(ActivationTag<Activation::selu>{}); break;
    case Activation::relu2: fn(ActivationTag<Activation::relu2>{}); break;
    case Activation::sigmoid: fn(ActivationTag<Activation::sigmoid>{}); break;
    case Activation::tanh: fn(ActivationTag<Activation::tanh>{}); break;
  }
}

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
