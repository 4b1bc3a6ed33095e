#include "lamina/base/torch_random.h"

#include <cmath>
#include <numbers>

namespace lamina {
namespace {

/// Number of random bits in a uniform number: the significand bits of T, including the leading one.
template <class T>
constexpr int kDigits = std::is_same_v<T, double>  ? 53
                        : std::is_same_v<T, float> ? 24
                        : std::is_same_v<T, f16>   ? 11
                                                   : 8;

/// One uniform number in [0, 1) with kDigits<T> random bits. The conversion is exact.
template <class T>
Accumulate<T> unit(TorchGenerator& generator) {
  constexpr uint64_t kMask = (uint64_t{1} << kDigits<T>)-1;
  const uint64_t bits = std::is_same_v<T, double> ? generator.random64() : generator.random32();
  return static_cast<Accumulate<T>>(bits & kMask) / static_cast<Accumulate<T>>(kMask + 1);
}

/// Rounds a value to T, because PyTorch rounds every intermediate result of a half type.
template <class T>
Accumulate<T> rounded(Accumulate<T> value) {
  return convert<Accumulate<T>>(convert<T>(value));
}

/// 2π·u. PyTorch's vectorized f32 kernel multiplies in f32, its general kernel in f64. Near a zero of the cosine, the
/// results differ by many ulp.
template <class T>
Accumulate<T> angle(Accumulate<T> u) {
  constexpr double kTurn = 2.0 * std::numbers::pi;
  if constexpr (std::is_same_v<T, float>) return static_cast<float>(kTurn) * u;
  return rounded<T>(static_cast<Accumulate<T>>(kTurn * static_cast<double>(u)));
}

/// Box-Muller transform of 16 uniform numbers. Elements j and j + 8 form a pair.
template <class T>
void box_muller_16(T* values, Accumulate<T> mean, Accumulate<T> deviation) {
  using A = Accumulate<T>;
  for (int j = 0; j < 8; ++j) {
    const A u1 = rounded<T>(A{1} - convert<A>(values[j]));  // in (0, 1], so that the logarithm is finite
    const A u2 = convert<A>(values[j + 8]);
    const A logarithm = rounded<T>(std::log(u1));
    const A radius = rounded<T>(std::sqrt(rounded<T>(A{-2} * logarithm)));
    const A theta = angle<T>(u2);
    const auto scaled = [&](A direction) {
      const A normal = rounded<T>(radius * rounded<T>(direction));
      if constexpr (std::is_same_v<T, float>) return std::fma(normal, deviation, mean);
      return convert<T>(rounded<T>(normal * deviation) + mean);
    };
    values[j] = scaled(std::cos(theta));
    values[j + 8] = scaled(std::sin(theta));
  }
}

}  // namespace

double TorchGenerator::normal() {
  if (next_normal_) {
    const double value = *next_normal_;
    next_normal_.reset();
    return value;
  }
  const double u1 = unit<double>(*this);
  const double u2 = unit<double>(*this);
  const double radius = std::sqrt(-2.0 * std::log1p(-u2));
  const double theta = 2.0 * std::numbers::pi * u1;
  next_normal_ = radius * std::sin(theta);
  return radius * std::cos(theta);
}

template <class T>
void torch_uniform(TorchGenerator& generator, std::span<T> values, double low, double high) {
  using A = Accumulate<T>;
  const A from = rounded<T>(static_cast<A>(low));
  const A width = rounded<T>(rounded<T>(static_cast<A>(high)) - from);
  for (T& value : values) {
    const A scaled = unit<T>(generator) * width;  // a separate statement, to prevent a fused multiply-add
    value = convert<T>(scaled + from);
  }
}

template <class T>
void torch_normal(TorchGenerator& generator, std::span<T> values, double mean, double deviation) {
  using A = Accumulate<T>;
  constexpr size_t kGroup = 16;
  if (values.size() < kGroup) {
    for (T& value : values) {
      const double scaled = generator.normal() * deviation;
      value = convert<T>(scaled + mean);
    }
    return;
  }
  const A centre = rounded<T>(static_cast<A>(mean));
  const A scale = rounded<T>(static_cast<A>(deviation));
  for (T& value : values) value = convert<T>(unit<T>(generator));
  for (size_t i = 0; i + kGroup <= values.size(); i += kGroup) box_muller_16(values.data() + i, centre, scale);
  if (values.size() % kGroup == 0) return;
  const std::span<T> last = values.last(kGroup);
  for (T& value : last) value = convert<T>(unit<T>(generator));
  box_muller_16(last.data(), centre, scale);
}

#define LAMINA_INSTANTIATE(T)                                                    \
  template void torch_uniform<T>(TorchGenerator&, std::span<T>, double, double); \
  template void torch_normal<T>(TorchGenerator&, std::span<T>, double, double);
LAMINA_INSTANTIATE(float)
LAMINA_INSTANTIATE(double)
LAMINA_INSTANTIATE(bf16)
LAMINA_INSTANTIATE(f16)
#undef LAMINA_INSTANTIATE

}  // namespace lamina
