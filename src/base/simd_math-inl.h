// exp, expm1, tanh, sigmoid and the normal CDF for f32 and f64 vectors, accurate to a few ulp. A NaN stays a NaN. The
// polynomials interpolate at Chebyshev nodes; the comment above each one gives its error.
#if defined(LAMINA_BASE_SIMD_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LAMINA_BASE_SIMD_MATH_INL_H_
#undef LAMINA_BASE_SIMD_MATH_INL_H_
#else
#define LAMINA_BASE_SIMD_MATH_INL_H_
#endif

#include <hwy/highway.h>

#include <array>
#include <utility>

#include "lamina/base/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::HWY_NAMESPACE {

/// Polynomial coefficients and limits of the functions below, for f32 and f64.
template <class T>
struct MathConstants;

template <>
struct MathConstants<float> {
  static constexpr int kMantissaBits = 23;
  static constexpr int kExponentBias = 127;
  static constexpr float kRounder = 12582912.0F;  // 1.5 · 2^23: adding it leaves round(x) in the low bits
  static constexpr float kLn2High = 0.693359375F;
  static constexpr float kLn2Low = -2.12194440e-4F;
  static constexpr float kExpLow = -104.0F;    // exp(x) is 0 below
  static constexpr float kExpHigh = 89.0F;     // exp(x) is infinite above
  static constexpr float kExpNormal = -87.0F;  // exp(x) is a normal number from here on
  /// (exp(r) − 1 − r) / r² for |r| ≤ ln2/2. The error of exp(r) − 1 is 2^-30.
  static constexpr std::array<double, 6> kExpm1{0.500000001353872989,   0.16666666681704215,    0.0416664641974056923,
                                                0.00833331084464786256, 0.00139337307157920825, 0.00019891080463998842};
  /// Φ(−a)·exp(a²/2)·(a + k)/k as a polynomial in (a − k)/(a + k), k = kTailCentre, 0 ≤ a ≤ kTailEnd. Error 2^-29.
  static constexpr double kTailCentre = 3.0;
  static constexpr float kTailEnd = 15.0F;  // Φ(−15) is zero in f32
  static constexpr std::array<double, 11> kTail{
      0.243027896904659786,      -0.169777329611513039,    0.0766725588913888394,   -0.0157542539737253399,
      -0.00348742965551041972,   0.00232330671697093078,   0.000341385774792849918, -0.000344825516962061166,
      -0.0000815697735972586912, 0.0000444413180678786743, 0.0000184972905722648924};
};

template <>
struct MathConstants<double> {
  static constexpr int kMantissaBits = 52;
  static constexpr int kExponentBias = 1023;
  static constexpr double kRounder = 6755399441055744.0;  // 1.5 · 2^52
  static constexpr double kLn2High = 6.93147180369123816490e-01;
  static constexpr double kLn2Low = 1.90821492927058770002e-10;
  static constexpr double kExpLow = -746.0;
  static constexpr double kExpHigh = 710.0;
  static constexpr double kExpNormal = -708.0;
  /// As above for f64; error 2^-60.
  static constexpr std::array<double, 11> kExpm1{0.5,
                                                 0.16666666666666671,
                                                 0.0416666666666666698,
                                                 0.00833333333332608312,
                                                 0.00138888888888837112,
                                                 0.000198412698750022788,
                                                 0.0000248015873256774619,
                                                 2.75572551700008874e-6,
                                                 2.75572734787185805e-7,
                                                 2.51053127296221018e-8,
                                                 2.09147553258932022e-9};
  /// As above for f64; error 2^-56.
  static constexpr double kTailCentre = 5.0;
  static constexpr double kTailEnd = 40.0;
  static constexpr std::array<double, 23> kTail{
      0.153838609950012592,     -0.133076500578011339,   0.0990611231939953177,     -0.0627066313342610343,
      0.0330040732340750051,    -0.0138237277412589359,  0.00415901336001829193,    -0.000598675354129853623,
      -0.000159573880147849757, 0.000108979813007464602, -0.0000118751427632942624, -9.95256207558060707e-6,
      3.33623207291732909e-6,   7.96174257133394497e-7,  -5.53829156456455573e-7,   -6.730244086998139e-8,
      8.65967407483121881e-8,   8.41836666777382916e-9,  -1.31697736801594794e-8,   -1.82890041625783477e-9,
      1.53344722144053066e-9,   3.37821153303075617e-10, -3.61464241562920868e-11};
};

template <class D>
using Constants = MathConstants<hn::TFromD<D>>;

/// Broadcasts `value` to every lane.
template <class D>
HWY_INLINE hn::Vec<D> constant(D d, double value) {
  return hn::Set(d, static_cast<hn::TFromD<D>>(value));
}

template <class D, size_t... I>
HWY_INLINE hn::Vec<D> horner(D d, hn::Vec<D> x, const double* last, std::index_sequence<I...> /*steps*/) {
  auto sum = constant(d, *last);
  ((sum = hn::MulAdd(sum, x, constant(d, *(last - 1 - static_cast<ptrdiff_t>(I))))), ...);
  return sum;
}

/// c[0] + c[1]·x + c[2]·x² + …
template <class D, size_t N>
HWY_INLINE hn::Vec<D> polynomial(D d, hn::Vec<D> x, const std::array<double, N>& c) {
  return horner(d, x, c.data() + (N - 1), std::make_index_sequence<N - 1>());
}

/// The parts of exp(x) = 2^n · (1 + fraction), with |fraction| < 0.42.
template <class D>
struct ExpParts {
  hn::Vec<hn::RebindToSigned<D>> n;
  hn::Vec<D> fraction;
};

template <class D>
HWY_INLINE ExpParts<D> exp_parts(D d, hn::Vec<D> x) {
  using C = Constants<D>;
  const hn::RebindToSigned<D> di;
  const auto rounder = hn::Set(d, C::kRounder);
  const auto shifted = hn::MulAdd(x, constant(d, 1.4426950408889634074), rounder);
  const auto whole = hn::Sub(shifted, rounder);
  auto r = hn::NegMulAdd(whole, hn::Set(d, C::kLn2High), x);
  r = hn::NegMulAdd(whole, hn::Set(d, C::kLn2Low), r);
  const auto fraction = hn::MulAdd(hn::Mul(r, r), polynomial(d, r, C::kExpm1), r);
  return {hn::Sub(hn::BitCast(di, shifted), hn::BitCast(di, rounder)), fraction};
}

/// 2^n for n in the exponent range of normal numbers.
template <class D>
HWY_INLINE hn::Vec<D> fast_exp2(D d, hn::Vec<hn::RebindToSigned<D>> n) {
  const hn::RebindToSigned<D> di;
  return hn::BitCast(d,
                     hn::ShiftLeft<Constants<D>::kMantissaBits>(hn::Add(n, hn::Set(di, Constants<D>::kExponentBias))));
}

// Min and Max below take x as second argument, because on x86 they return the second operand if one is NaN.

/// exp(x), with correct subnormal, zero and infinite results.
template <class D>
HWY_INLINE hn::Vec<D> exp(D d, hn::Vec<D> x) {
  using C = Constants<D>;
  const auto parts = exp_parts(d, hn::Min(hn::Set(d, C::kExpHigh), hn::Max(hn::Set(d, C::kExpLow), x)));
  const auto half = hn::ShiftRight<1>(parts.n);  // 2^n may be outside the normal range, so scale by two halves
  const auto scale = fast_exp2(d, half);
  return hn::Mul(hn::MulAdd(parts.fraction, scale, scale), fast_exp2(d, hn::Sub(parts.n, half)));
}

/// 2^x, clamped to the range of normal numbers. A NaN stays a NaN. In f32 it takes about half the work of exp: the
/// rounded x becomes the exponent, and a polynomial through Chebyshev points handles the remainder in [-1/2, 1/2]
/// (relative error 2e-9).
HWY_INLINE hn::Vec<hn::ScalableTag<float>> exp2(hn::ScalableTag<float> d, hn::Vec<hn::ScalableTag<float>> x) {
  const hn::RebindToSigned<decltype(d)> di;
  x = hn::Min(hn::Set(d, 127.0F), hn::Max(hn::Set(d, -126.0F), x));  // this argument order keeps a NaN a NaN
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
HWY_INLINE hn::Vec<hn::ScalableTag<double>> exp2(hn::ScalableTag<double> d, hn::Vec<hn::ScalableTag<double>> x) {
  return exp(d, hn::Mul(x, hn::Set(d, 0.69314718055994530942)));
}

/// exp(x) for x below the overflow threshold; subnormal results become zero. Cheaper than exp() and sufficient for
/// softmax.
template <class D>
HWY_INLINE hn::Vec<D> exp_flushed(D d, hn::Vec<D> x) {
  const auto lowest = hn::Set(d, Constants<D>::kExpNormal);
  const auto parts = exp_parts(d, hn::Max(lowest, x));
  const auto scale = fast_exp2(d, parts.n);
  return hn::IfThenZeroElse(hn::Lt(x, lowest), hn::MulAdd(parts.fraction, scale, scale));
}

/// exp(x) − 1 for x ≤ 0.
template <class D>
HWY_INLINE hn::Vec<D> expm1_of_negative(D d, hn::Vec<D> x) {
  const auto parts = exp_parts(d, hn::Max(constant(d, -40.0), x));  // exp(−40) is negligible compared to 1
  const auto scale = fast_exp2(d, parts.n);
  return hn::MulAdd(parts.fraction, scale, hn::Sub(scale, constant(d, 1.0)));
}

/// σ(x) = 1 / (1 + exp(−x)), and σ(−x) = 1 − σ(x), both without cancellation.
template <class V>
struct SigmoidPair {
  V at_x;
  V at_minus_x;
};

template <class D>
HWY_INLINE SigmoidPair<hn::Vec<D>> sigmoid_pair(D d, hn::Vec<D> x) {
  const auto one = constant(d, 1.0);
  const auto z = exp(d, hn::Neg(hn::Abs(x)));
  const auto large = hn::Div(one, hn::Add(one, z));
  const auto small = hn::Mul(z, large);
  const auto negative = hn::Lt(x, hn::Zero(d));
  return {hn::IfThenElse(negative, small, large), hn::IfThenElse(negative, large, small)};
}

template <class D>
HWY_INLINE hn::Vec<D> sigmoid(D d, hn::Vec<D> x) {
  return sigmoid_pair(d, x).at_x;
}

/// The derivative of x·sigmoid(x), given s = sigmoid(x).
template <class D>
HWY_INLINE hn::Vec<D> silu_slope(D d, hn::Vec<D> x, hn::Vec<D> s) {
  const auto one = hn::Set(d, hn::TFromD<D>{1});
  return hn::Mul(s, hn::MulAdd(x, hn::Sub(one, s), one));
}

/// tanh(x) and its derivative 1 − tanh²(x), without cancellation. With m = exp(−2|x|) − 1, tanh(x) is −m/(m + 2) with
/// the sign of x, and the derivative is (m + 1)·(2/(m + 2))².
template <class V>
struct TanhPair {
  V value;
  V slope;
};

template <class D>
HWY_INLINE TanhPair<hn::Vec<D>> tanh_pair(D d, hn::Vec<D> x) {
  const auto two = constant(d, 2.0);
  const auto m = expm1_of_negative(d, hn::Mul(constant(d, -2.0), hn::Abs(x)));
  const auto below = hn::Add(m, two);
  const auto root = hn::Div(two, below);
  return {hn::CopySign(hn::Div(m, below), x), hn::Mul(hn::Add(m, constant(d, 1.0)), hn::Mul(root, root))};
}

/// The normal CDF Φ(x) and exp(−x²/2), with x clamped to ±kTailEnd, beyond which both are constant.
template <class V>
struct NormalParts {
  V distribution;
  V exponential;
  V cut_x;
};

template <class D>
HWY_INLINE NormalParts<hn::Vec<D>> normal_parts(D d, hn::Vec<D> x) {
  using C = Constants<D>;
  const auto a = hn::Min(hn::Set(d, C::kTailEnd), hn::Abs(x));
  const auto half = constant(d, 0.5);
  const auto square = hn::Mul(a, a);
  const auto square_error = hn::MulSub(a, a, square);  // rounding error of a², which exp would magnify
  auto e = exp(d, hn::Mul(hn::Neg(half), square));
  e = hn::NegMulAdd(e, hn::Mul(half, square_error), e);
  const auto centre = constant(d, C::kTailCentre);
  const auto t = hn::Div(centre, hn::Add(a, centre));
  const auto u = hn::NegMulAdd(constant(d, 2.0), t, constant(d, 1.0));
  const auto tail = hn::Mul(hn::Mul(e, t), polynomial(d, u, C::kTail));
  const auto negative = hn::Lt(x, hn::Zero(d));
  return {hn::IfThenElse(negative, tail, hn::Sub(constant(d, 1.0), tail)), e, hn::CopySign(a, x)};
}

}  // namespace lamina::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
