#include "lamina/ops/linear/linear.h"

#include <gtest/gtest.h>

#include "lamina/autograd/tape.h"
#include "lamina/ops/linear/gated_linear.h"
#include "lamina/ops/linear/matmul.h"
#include "support/error_of.h"

namespace lamina::ops {
namespace {

using testing::expect_error;

TEST(Linear, RefusesWhatDoesNotFit) {
  const Device device = Device::cpu(1);
  const Tensor x = Tensor::zeros({2, 3}, DType::f32, device);
  const Tensor weight = Tensor::zeros({5, 3}, DType::f32, device);
  expect_error([&] { linear(x, Tensor::zeros({3, 5}, DType::f32, device)); }, "weight is [3,5]; expected [out, 3]");
  expect_error([&] { linear(x, Tensor::zeros({5, 3}, DType::f64, device)); }, "f64 goes with f64 only");
  expect_error([&] { linear(x, weight, x); }, "bias is [2,3]; expected [5]");
  expect_error([&] { linear(Tensor::zeros({2, 3}, DType::i64, device), weight); }, "x is i64");
  expect_error([&] { linear(x, Tensor()); }, "weight is undefined");
  expect_error([&] { linear(x, Tensor::zeros({5, 3}, DType::f32, Device::meta())); }, "another on meta");
}

TEST(GatedLinear, RefusesWhatDoesNotFit) {
  const Device device = Device::cpu(1);
  const Tensor x = Tensor::zeros({2, 3}, DType::f32, device);
  const auto weight = [&](int64_t rows) { return Tensor::zeros({rows, 3}, DType::f32, device); };
  expect_error([&] { gated_linear(x, weight(5), {}, Gate::swiglu); },
               "gated_linear: weight is [5,3]; expected an even");
  expect_error([&] { gated_linear(x, weight(4), x, Gate::swiglu); }, "bias is [2,3]; expected [4]");
  expect_error([&] { gated_linear(x, weight(4), {}, Gate::swiglu, {.alpha = 0}); }, "gated_linear: alpha is 0");
  expect_error([&] { gated_linear(Tensor(), weight(4), {}, Gate::swiglu); }, "x is undefined");
}

TEST(Matmul, RefusesWhatDoesNotFit) {
  const Device device = Device::cpu(1);
  const auto zeros = [&](const Shape& shape) { return Tensor::zeros(shape, DType::f32, device); };
  expect_error([&] { matmul(zeros({2, 3}), zeros({4, 5})); }, "they must be equal");
  expect_error([&] { matmul(zeros({2, 3}), zeros({2, 3, 5})); }, "more dimensions");
  expect_error([&] { matmul(zeros({4, 2, 3}), zeros({2, 3, 5})); }, "must be 1 or that of a");
  expect_error([&] { matmul(zeros({3}), zeros({3, 5})); }, "expected at least 2");
}

TEST(Linear, HalfWeightsWithSingleActivations) {
  const Device device = Device::cpu(2);
  std::vector<float> values;
  for (int i = 0; i < 6; ++i) values.push_back(0.25F * static_cast<float>(i) - 0.5F);
  Tensor x = Tensor::from(values, {2, 3}, device);
  Tensor weight = Tensor::from(values, {2, 3}, device).to(DType::bf16);  // exact in bf16
  Tape tape;
  tape.watch(weight, DType::f32);
  const Tensor y = linear(x, weight);
  EXPECT_EQ(y.dtype(), DType::f32);
  EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{0.3125F, -0.25F, -0.25F, 0.875F}));
  tape.backward({y}, {Tensor::full({2, 2}, 1.0, DType::f32, device)});
  EXPECT_EQ(tape.grad(weight).dtype(), DType::f32);
  EXPECT_EQ(tape.grad(weight).to_vector<float>(), (std::vector<float>{-0.25F, 0.25F, 0.75F, -0.25F, 0.25F, 0.75F}));
}

TEST(Linear, MicroBatchesAddUpInTheGradientsOwnBuffer) {
  const Device device = Device::cpu(2);
  Tensor weight = Tensor::full({4, 3}, 0.5, DType::f32, device);
  const Tensor x = Tensor::full({8, 3}, 2.0, DType::f32, device);
  const Tensor dy = Tensor::full({8, 4}, 1.0, DType::f32, device);
  Tape tape;
  tape.watch(weight);
  tape.backward({linear(x, weight)}, {dy});
  const void* buffer = tape.grad(weight).raw();
  tape.backward({linear(x, weight)}, {dy});
  EXPECT_EQ(tape.grad(weight).raw(), buffer);
  EXPECT_EQ(tape.grad(weight).to_vector<float>(), std::vector<float>(12, 32.0F));
}

}  // namespace
}  // namespace lamina::ops
