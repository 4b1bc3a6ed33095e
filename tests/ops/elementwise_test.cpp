#include "lamina/ops/elementwise/elementwise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "lamina/autograd/tape.h"
#include "lamina/ops/elementwise/concat.h"
#include "lamina/ops/elementwise/reduce.h"
#include "lamina/ops/elementwise/soft_cap.h"
#include "support/error_of.h"

namespace lamina::ops {
namespace {

using testing::expect_error;

TEST(Elementwise, SaysWhatIsWrong) {
  const Device device = Device::cpu(1);
  const Tensor a = Tensor::zeros({2, 3}, DType::f32, device);
  const Tensor b = Tensor::zeros({2}, DType::f32, device);
  const Tensor none = Tensor::zeros({0, 3}, DType::f32, device);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  expect_error([&] { add(a, b); }, "add: a [2,3] and b [2] do not broadcast: extents 3 and 2 must be equal");
  expect_error([&] { mul(a, b.to(DType::bf16)); }, "mul: b is bf16; expected f32");
  expect_error([&] { sub(a, Tensor()); }, "sub: b is undefined");
  expect_error([&] { add(a, Tensor::zeros({2, 3}, DType::f32, Device::meta())); }, "one argument is on");
  expect_error([&] { add_scaled(a, a, nan); }, "add_scaled: alpha is nan");
  expect_error([&] { scale(a, std::numeric_limits<double>::infinity()); }, "scale: alpha is inf");
  expect_error([&] { soft_cap(a, 0.0); }, "soft_cap: cap is 0; expected a number > 0");
  expect_error([&] { soft_cap(a, nan); }, "soft_cap: cap is nan");
  expect_error([&] { mean(none); }, "mean: x [0,3] has no elements to average");
  expect_error([&] { mean(none, 0); }, "mean: axis 0 of x [0,3] has no elements");
  expect_error([&] { concat({}, 0); }, "concat: no tensors were given");
  expect_error([&] { concat({a, b}, 0); }, "concat: tensor 1 is [2], tensor 0 is [2,3]");
  expect_error([&] { concat({a, Tensor()}, 0); }, "concat: tensor 1 is undefined");
}

TEST(Elementwise, ASoftCapOfThirtyTakesAHundredToTwentyNinePointNine) {
  const Tensor x = Tensor::full({1}, 100.0, DType::f32, Device::cpu(1));
  EXPECT_FLOAT_EQ(static_cast<float>(soft_cap(x, 30.0).item()), 30.0F * std::tanh(100.0F / 30.0F));
}

TEST(Elementwise, AMillionTenthsSumWithoutDrift) {
  const Tensor x = Tensor::full({1000003}, 0.1, DType::f32, Device::cpu(2));
  const double exact = 1000003 * static_cast<double>(0.1F);
  const double naive = std::accumulate(x.data<float>(), x.data<float>() + x.numel(), 0.0F);
  EXPECT_LT(std::abs(sum(x).item() - exact), std::abs(naive - exact) / 100);
}

TEST(Elementwise, TheGradientOfAScalarLossReachesBothOperands) {
  const Device device = Device::cpu(2);
  Tape tape;
  Tensor a = Tensor::full({4, 3}, 2.0, DType::f32, device);
  Tensor b = Tensor::full({3}, 5.0, DType::f32, device);
  tape.watch(a);
  tape.watch(b);
  tape.backward(sum(mul(a, b)));
  EXPECT_EQ(tape.grad(a).to_vector<float>(), std::vector<float>(12, 5.0F));
  EXPECT_EQ(tape.grad(b).to_vector<float>(), std::vector<float>(3, 8.0F));
}

}  // namespace
}  // namespace lamina::ops
