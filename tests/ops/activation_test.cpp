#include "lamina/ops/activation/activation.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "lamina/ops/activation/gated_activation.h"
#include "support/close.h"

namespace lamina::ops {
namespace {

using testing::largest_magnitude;

using testing::expect_error;

/// The activation's formula; each step is rounded to S.
template <class S>
S plain(Activation function, S x) {
  switch (function) {
    case Activation::relu: return std::max(x, S(0));
    case Activation::gelu: return x * std::erfc(-x * S(0.70710678118654752440)) / 2;
    case Activation::gelu_tanh: {
      const S u = S(0.79788456080286535588) * (x + S(0.044715) * x * x * x);
      return x / (1 + std::exp(-2 * u));
    }
    case Activation::silu: return x / (1 + std::exp(-x));
    case Activation::elu: return x > 0 ? x : std::expm1(x);
    case Activation::selu: return S(1.0507009873554804934) * (x > 0 ? x : S(1.6732632423543772848) * std::expm1(x));
    case Activation::relu2: return x > 0 ? x * x : 0;
    case Activation::sigmoid: return 1 / (1 + std::exp(-x));
    case Activation::tanh: return std::tanh(x);
    default: return x;
  }
}

/// |ours − truth| in ulps of a float near `truth`.
double units(double ours, double truth) {
  if (ours == truth) return 0;
  const auto at = std::max(std::abs(static_cast<float>(truth)), std::numeric_limits<float>::min());
  const float above = std::nextafter(at, std::numeric_limits<float>::infinity());
  return std::abs(ours - truth) / (static_cast<double>(above) - static_cast<double>(at));
}

TEST(Activation, IsAsAccurateInEveryBinadeAsTheStandardFunctions) {
  const Device device = Device::cpu(2);
  std::vector<float> x;
  // Every 4099th bit pattern up to 40, with both signs: covers all binades.
  for (uint32_t bits = 0; bits < std::bit_cast<uint32_t>(40.0F); bits += 4099) {
    x.push_back(std::bit_cast<float>(bits));
    x.push_back(-x.back());
  }
  const Tensor input = Tensor::from(x, {static_cast<int64_t>(x.size())}, device);
  for (int i = 1; i <= static_cast<int>(Activation::tanh); ++i) {
    const auto function = static_cast<Activation>(i);
    const std::vector<float> y = activation(input, function).to_vector<float>();
    std::vector<double> ours;
    std::vector<double> naive;
    for (size_t j = 0; j < x.size(); ++j) {
      const double truth = plain<double>(function, x[j]);
      ours.push_back(units(y[j], truth));
      naive.push_back(units(plain<float>(function, x[j]), truth));
    }
    EXPECT_LE(largest_magnitude(ours), 2 * largest_magnitude(naive) + 1)
        << name_of(function) << ": the plain float formula is off by " << largest_magnitude(naive);
  }
}

TEST(Activation, HandlesZeroInfinityAndNan) {
  const Device device = Device::cpu(1);
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = Tensor::from(std::vector<float>{0.0F, -0.0F, 1e30F, -1e30F, inf, nan}, {6}, device);
  for (int i = 1; i <= static_cast<int>(Activation::tanh); ++i) {
    const auto function = static_cast<Activation>(i);
    const auto y = activation(x, function).to_vector<float>();
    for (size_t j = 0; j < 5; ++j) {
      const float expected = plain<float>(function, x.to_vector<float>()[j]);
      EXPECT_EQ(y[j], expected) << name_of(function) << " " << j;
    }
    EXPECT_TRUE(std::isnan(y[5])) << name_of(function);
  }
}

TEST(Activation, NamesAreFoundAgain) {
  for (int i = 0; i <= static_cast<int>(Activation::tanh); ++i) {
    const auto function = static_cast<Activation>(i);
    EXPECT_EQ(kind_from_name<Activation>(name_of(function)), function);
  }
  EXPECT_FALSE(kind_from_name<Activation>("swish").has_value());
  for (int i = 0; i <= static_cast<int>(Gate::liglu); ++i) {
    const auto gate = static_cast<Gate>(i);
    EXPECT_EQ(kind_from_name<Gate>(name_of(gate)), gate);
  }
}

TEST(GatedActivation, SaysWhatIsWrong) {
  const Device device = Device::cpu(1);
  const Tensor odd = Tensor::zeros({2, 3}, DType::f32, device);
  const Tensor even = Tensor::zeros({2, 4}, DType::f32, device);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  expect_error([&] { gated_activation(odd, Gate::swiglu); }, "[2,3] is 3; expected an even number");
  expect_error([&] { gated_activation(even, Gate::swiglu, {.alpha = 0}); }, "alpha is 0");
  expect_error([&] { gated_activation(even, Gate::swiglu, {.limit = nan}); }, "limit is nan");
  expect_error([&] { gated_activation(even.to(DType::i32), Gate::glu); }, "x is i32");
  expect_error([&] { activation(Tensor(), Activation::relu); }, "x is undefined");
}

TEST(GatedActivation, BilinearOfEqualHalvesIsTheSquare) {
  const Device device = Device::cpu(1);
  const Tensor x = Tensor::from(std::vector<float>{1, -2, 3, 1, -2, 3}, {1, 6}, device);
  EXPECT_EQ(gated_activation(x, Gate::liglu).to_vector<float>(), (std::vector<float>{1, 4, 9}));
}

}  // namespace
}  // namespace lamina::ops
