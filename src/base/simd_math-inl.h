// Vector exp of f32 and f64. Included once per target by kernels that use Highway's foreach_target.
//   e^x = 2^n · e^r,  n = round(x / ln 2),  |r| <= ln 2 / 2,  e^r = 1 + r + r² P(r)
// P is a Chebyshev fit of (e^r − 1 − r) / r² whose error lies below a tenth of a rounding; the results are within 1 ulp
// (2 ulp on targets without fused multiply-add).
#if defined(LAMINA_BASE_SIMD_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LAMINA_BASE_SIMD_MATH_INL_H_
#undef LAMINA_BASE_SIMD_MATH_INL_H_
#else
#define LAMINA_BASE_SIMD_MATH_INL_H_
#endif

#include <hwy/highway.h>

#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace lamina::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class T>
struct ExpConstants;
template <>
struct ExpConstants<float> {
  static constexpr float kRound = 12582912.0F;  // 1.5 · 2^23: adding it leaves round(x) in the low bits
  static constexpr int kMantissa = 23;
  static constexpr float kLog2e = 1.44269504F;
  static constexpr float kLn2High = 0.693359375F;  // few bits, so that n · high is exact
  static constexpr float kLn2Low = -2.12194440e-4F;
  static constexpr float kLowest = -87.0F;  // above ln of the smallest normal number
  static constexpr float kZero = -104.0F;   // rounds to zero
  static constexpr float kInfinity = 89.0F;
};
template <>
struct ExpConstants<double> {
  static constexpr double kRound = 6755399441055744.0;
  static constexpr int kMantissa = 52;
  static constexpr double kLog2e = 1.4426950408889634074;
  static constexpr double kLn2High = 6.93145751953125e-1;
  static constexpr double kLn2Low = 1.42860682030941723212e-6;
  static constexpr double kLowest = -708.0;
  static constexpr double kZero = -746.0;
  static constexpr double kInfinity = 710.0;
};

/// P(r) for |r| <= ln 2 / 2.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp_polynomial(D d, V r) {
  const auto step = [&](V sum, double c)
                        HWY_ATTR { return hn::MulAdd(sum, r, hn::Set(d, static_cast<hn::TFromD<D>>(c))); };
  if constexpr (std::is_same_v<hn::TFromD<D>, float>) {
    V p = hn::Set(d, 0.00139262508315F);
    p = step(p, 0.00836323288368);
    p = step(p, 0.041666554213);
    p = step(p, 0.166665766661);
    return step(p, 0.5);
  } else {
    V p = hn::Set(d, 2.5100472505694996003e-8);
    p = step(p, 2.7620201591031548792e-7);
    p = step(p, 2.7557268276905696187e-6);
    p = step(p, 0.000024801521057868205199);
    p = step(p, 0.00019841269863171556026);
    p = step(p, 0.0013888888917367080562);
    p = step(p, 0.0083333333333300381973);
    p = step(p, 0.041666666666623820532);
    p = step(p, 0.1666666666666666746);
    return step(p, 0.50000000000000010314);
  }
}

/// e^x = 2^n · (1 + m); `n` holds the integer in the low bits of a float, as ExpConstants::kRound leaves it.
template <class D>
struct ExpParts {
  hn::Vec<D> n;
  hn::Vec<D> m;
};

template <class D, class V = hn::Vec<D>>
HWY_INLINE ExpParts<D> exp_parts(D d, V x) {
  using C = ExpConstants<hn::TFromD<D>>;
  const V round = hn::Set(d, C::kRound);
  const V n = hn::MulAdd(x, hn::Set(d, C::kLog2e), round);
  const V whole = hn::Sub(n, round);
  const V r = hn::NegMulAdd(whole, hn::Set(d, C::kLn2Low), hn::NegMulAdd(whole, hn::Set(d, C::kLn2High), x));
  return {n, hn::MulAdd(hn::Mul(r, r), exp_polynomial(d, r), r)};
}

/// v · 2^n for normal results.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V scale_exponent(D d, V v, V n) {
  const hn::RebindToUnsigned<D> du;
  constexpr int kShift = ExpConstants<hn::TFromD<D>>::kMantissa;
  return hn::BitCast(d, hn::Add(hn::BitCast(du, v), hn::ShiftLeft<kShift>(hn::BitCast(du, n))));
}

/// e^x; overflow gives infinity, underflow the subnormal numbers and zero, NaN stays NaN.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp(D d, V x) {
  using C = ExpConstants<hn::TFromD<D>>;
  const V clamped = hn::Min(hn::Set(d, C::kInfinity), hn::Max(hn::Set(d, C::kZero), x));
  const ExpParts<D> e = exp_parts(d, clamped);
  // 2^n in two factors, because n itself may lie outside the exponents.
  const V one = hn::Set(d, hn::TFromD<D>{1});
  const V round = hn::Set(d, C::kRound);
  const V half = hn::MulAdd(hn::Sub(e.n, round), hn::Set(d, hn::TFromD<D>(0.5)), round);
  const V rest = hn::Add(hn::Sub(e.n, half), round);
  return hn::Mul(hn::Mul(hn::Add(e.m, one), scale_exponent(d, one, half)), scale_exponent(d, one, rest));
}

/// e^x for x below the overflow threshold; results below the smallest normal number are zero. Cheaper than exp(): what
/// a softmax needs.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp_flushed(D d, V x) {
  const V lowest = hn::Set(d, ExpConstants<hn::TFromD<D>>::kLowest);
  const ExpParts<D> e = exp_parts(d, hn::Max(lowest, x));
  const V value = scale_exponent(d, hn::Add(e.m, hn::Set(d, hn::TFromD<D>{1})), e.n);
  return hn::IfThenZeroElse(hn::Lt(x, lowest), value);
}

/// e^x − 1 without cancellation, for x in [0, 80].
template <class D, class V = hn::Vec<D>>
HWY_INLINE V expm1_positive(D d, V x) {
  const ExpParts<D> e = exp_parts(d, x);
  const V one = hn::Set(d, hn::TFromD<D>{1});
  const V power = scale_exponent(d, one, e.n);
  return hn::MulAdd(power, e.m, hn::Sub(power, one));
}

}  // namespace lamina::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
