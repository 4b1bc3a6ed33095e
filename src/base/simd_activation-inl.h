// Activations for f32 and f64 vectors. Each is a type with two functions: value(d, x), the activation, and both(d, x),
// the activation and its derivative. At a jump the derivative is the one from the left, as in PyTorch.
#if defined(LAMINA_BASE_SIMD_ACTIVATION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LAMINA_BASE_SIMD_ACTIVATION_INL_H_
#undef LAMINA_BASE_SIMD_ACTIVATION_INL_H_
#else
#define LAMINA_BASE_SIMD_ACTIVATION_INL_H_
#endif

#include <hwy/highway.h>

#include "lamina/base/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::HWY_NAMESPACE {

template <class V>
struct ValueSlope {
  V value;
  V slope;
};

/// Implements value() by both(). The compiler removes the unused derivative.
template <class Self>
struct FromBoth {
  template <class D>
  static HWY_INLINE hn::Vec<D> value(D d, hn::Vec<D> x) {
    return Self::both(d, x).value;
  }
};

struct Identity : FromBoth<Identity> {
  template <class D>
  static HWY_INLINE ValueSlope<hn::Vec<D>> both(D d, hn::Vec<D> x) {
    return {x, constant(d, 1.0)};
  }
};

struct Relu : FromBoth<Relu> {
  template <class D>
  static HWY_INLINE ValueSlope<hn::Vec<D>> both(D d, hn::Vec<D> x) {
    const auto positive = hn::Gt(x, hn::Zero(d));
    return {hn::Max(hn::Zero(d), x), hn::IfThenElseZero(positive, constant(d, 1.0))};
  }
};

struct SquaredRelu : FromBoth<SquaredRelu> {
  template <class D>
  static HWY_INLINE ValueSlope<hn::Vec<D>> both(D d, hn::Vec<D> x) {
    const auto r = hn::Max(hn::Zero(d), x);
    return {hn::Mul(r, r), hn::Add(r, r)};
  }
};

struct Sigmoid : FromBoth<Sigmoid> {
  template <class D>
  static HWY_INLINE ValueSlope<hn::Vec<D>> both(D d, hn::Vec<D> x) {
    const auto s = sigmoid_pair(d, x);
    return {s.at_x, hn::Mul(s.at_x, s.at_minus_x)};
  }
};

struct Silu : FromBoth<Silu> {
  template <class D>
  static HWY_INLINE ValueSlope<hn::Vec<D>> both(D d, hn::Vec<D> x) {
    const auto s = sigmoid_pair(d, x);
    return {hn::Mul(x, s.at_x), hn::Mul(s.at_x, hn::MulAdd(x, s.at_minus_x, constant(d, 1.0)))};
  }
};

struct Tanh : FromBoth<Tanh> {
  template <class D>
  static HWY_INLINE ValueSlope<hn::Vec<D>> both(D d, hn::Vec<D> x) {
    const auto t = tanh_pair(d, x);
    return {t.value, t.slope};
  }
};

/// x·Φ(x); the derivative is Φ(x) + x·φ(x).
struct Gelu : FromBoth<Gelu> {
  template <class D>
  static HWY_INLINE ValueSlope<hn::Vec<D>> both(D d, hn::Vec<D> x) {
    const auto n = normal_parts(d, x);
    const auto density = hn::Mul(n.exponential, constant(d, 0.39894228040143267794));  // 1/√(2π)
    return {hn::Mul(x, n.distribution), hn::MulAdd(n.cut_x, density, n.distribution)};
  }
};

/// x·σ(v) with v = 2·√(2/π)·(x + 0.044715·x³), because (1 + tanh u)/2 = σ(2u).
struct GeluTanh : FromBoth<GeluTanh> {
  template <class D>
  static HWY_INLINE ValueSlope<hn::Vec<D>> both(D d, hn::Vec<D> x) {
    const auto limit = constant(d, 64.0);  // beyond this limit σ(v) is exactly 0 or 1
    const auto cut = hn::Min(limit, hn::Max(hn::Neg(limit), x));
    const auto square = hn::Mul(cut, cut);
    const auto a = constant(d, 1.5957691216057307117);  // 2·√(2/π)
    const auto b = constant(d, 1.5957691216057307117 * 0.044715);
    const auto s = sigmoid_pair(d, hn::Mul(cut, hn::MulAdd(b, square, a)));
    const auto dv = hn::MulAdd(hn::Mul(b, constant(d, 3.0)), square, a);
    const auto slope = hn::Mul(s.at_x, hn::MulAdd(hn::Mul(cut, dv), s.at_minus_x, constant(d, 1.0)));
    return {hn::Mul(x, s.at_x), slope};
  }
};

template <class D>
HWY_INLINE ValueSlope<hn::Vec<D>> exponential_linear(D d, hn::Vec<D> x, double above, double below) {
  const auto positive = hn::Gt(x, hn::Zero(d));
  const auto m = expm1_of_negative(d, hn::IfThenElse(positive, hn::Zero(d), x));
  const auto up = constant(d, above);
  const auto down = constant(d, below);
  return {hn::IfThenElse(positive, hn::Mul(x, up), hn::Mul(m, down)),
          hn::IfThenElse(positive, up, hn::MulAdd(m, down, down))};
}

struct Elu : FromBoth<Elu> {
  template <class D>
  static HWY_INLINE ValueSlope<hn::Vec<D>> both(D d, hn::Vec<D> x) {
    return exponential_linear(d, x, 1.0, 1.0);
  }
};

struct Selu : FromBoth<Selu> {
  template <class D>
  static HWY_INLINE ValueSlope<hn::Vec<D>> both(D d, hn::Vec<D> x) {
    constexpr double kLambda = 1.0507009873554804934;
    constexpr double kAlpha = 1.6732632423543772848;
    return exponential_linear(d, x, kLambda, kLambda * kAlpha);
  }
};

}  // namespace lamina::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
