#include "lamina/ops/linear/linear.h"

#include <gtest/gtest.h>

#include <cmath>

#include "lamina/autograd/tape.h"
#include "lamina/ops/linear/feed_forward.h"
#include "lamina/ops/linear/gated_linear.h"
#include "lamina/ops/linear/matmul.h"
#include "lamina/ops/linear/norm_linear.h"
#include "lamina/ops/norm/layer_norm.h"
#include "support/error_of.h"

namespace lamina::ops {
namespace {

using testing::expect_error;

TEST(Linear, RefusesWhatDoesNotFit) {
  const Device device = Device::cpu(1);
  const Tensor x = Tensor::zeros({2, 3}, DType::f32, device);
  const Tensor weight = Tensor::zeros({5, 3}, DType::f32, device);
  expect_error([&] { linear(x, Tensor::zeros({3, 5}, DType::f32, device)); }, "weight is [3,5]; expected [out, 3]");
  expect_error([&] { linear(x, Tensor::zeros({5, 3}, DType::f64, device)); }, "expected both f64 or neither");
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

TEST(FeedForward, RefusesWhatDoesNotFit) {
  const Device device = Device::cpu(1);
  const auto zeros = [&](const Shape& shape) { return Tensor::zeros(shape, DType::f32, device); };
  const Tensor x = zeros({2, 3});
  expect_error(
      [&] {
        feed_forward(x, {zeros({4, 5}), {}, zeros({3, 4}), {}}, Activation::gelu);
      },
      "feed_forward: weight is [4,5]; expected [out, 3]");
  expect_error(
      [&] {
        feed_forward(x, {zeros({4, 3}), {}, zeros({4, 3}), {}}, Activation::gelu);
      },
      "feed_forward: down is [4,3]; expected [out, 4] for up [4,3]");
  expect_error(
      [&] {
        feed_forward(x, {zeros({4, 3}), zeros({3}), zeros({3, 4}), {}}, Activation::gelu);
      },
      "bias is [3]; expected [4]");
  expect_error([&] { feed_forward(x, {zeros({4, 3}), {}, Tensor(), {}}, Activation::gelu); }, "down is undefined");
}

/// On the CPU, feed_forward is bit-identical to the operators it is composed of, forward and backward.
TEST(FeedForward, IsTwoLinears) {
  const Device device = Device::cpu(2);
  const auto wave = [&](const Shape& shape, double step) {
    std::vector<float> values;
    for (int64_t i = 0; i < shape.numel(); ++i) values.push_back(static_cast<float>(std::sin(step * (i + 1.0))));
    return Tensor::from(values, shape, device);
  };
  for (const DType type : {DType::f32, DType::bf16, DType::f64}) {
    for (const Activation activation : {Activation::gelu_tanh, Activation::relu, Activation::none}) {
      const auto gradients = [&](bool as_one) {
        Tape tape;
        std::vector<Tensor> leaves{wave({5, 6}, 0.3), wave({8, 6}, 0.7), wave({8}, 1.1), wave({4, 8}, 1.3),
                                   wave({4}, 0.9)};
        for (Tensor& leaf : leaves) {
          leaf = leaf.to(type);
          tape.watch(leaf);
        }
        const Tensor y = as_one ? feed_forward(leaves[0], {leaves[1], leaves[2], leaves[3], leaves[4]}, activation)
                                : linear(linear(leaves[0], leaves[1], leaves[2], activation), leaves[3], leaves[4]);
        std::vector<std::vector<double>> all{y.to_vector<double>()};
        tape.backward({y}, {wave({5, 4}, 0.5).to(type)});
        for (const Tensor& leaf : leaves) all.push_back(tape.grad(leaf).to_vector<double>());
        return all;
      };
      EXPECT_EQ(gradients(true), gradients(false));
    }
  }
}

TEST(NormLinear, RefusesWhatDoesNotFit) {
  const Device device = Device::cpu(1);
  const auto zeros = [&](const Shape& shape) { return Tensor::zeros(shape, DType::f32, device); };
  const Tensor x = zeros({2, 3});
  const Tensor weight = zeros({4, 3});
  const auto layer = RowNorm::Kind::layer;
  expect_error([&] { norm_linear(x, {}, {}, zeros({3, 4})); }, "norm_linear: weight is [3,4]; expected [out, 3]");
  expect_error([&] { norm_linear(x, zeros({2, 4}), {}, weight); }, "residual is [2,4]");
  expect_error([&] { norm_linear(x, x.to(DType::bf16), {}, weight); }, "residual is bf16");
  expect_error([&] { norm_linear(x, {}, {.weight = zeros({4})}, weight); }, "norm.weight is [4]");
  expect_error([&] { norm_linear(x, {}, {.bias = zeros({3})}, weight); }, "an RMS norm has no bias");
  expect_error([&] { norm_linear(x, {}, {.kind = layer, .options = {.weight_offset = 1}}, weight); },
               "a layer norm with group_size 0 and weight_offset 1");
  expect_error([&] { norm_linear(x, {}, {.options = {.eps = -1}}, weight); }, "eps is -1");
  expect_error(
      [&] {
        norm_gated_linear(x, {}, {}, zeros({5, 3}), {}, Gate::swiglu);
      },
      "norm_gated_linear: weight is [5,3]; expected an even");
}

/// On the CPU, norm_linear is bit-identical to the operators it is composed of.
TEST(NormLinear, IsNormThenProduct) {
  const Device device = Device::cpu(2);
  std::vector<float> values;
  for (int i = 0; i < 30; ++i) values.push_back(std::sin(static_cast<float>(i)));
  const auto bits = [](const Tensor& tensor) { return tensor.to_vector<double>(); };
  for (const DType type : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    const Tensor x = Tensor::from(values, {5, 6}, device).to(type);
    const Tensor branch = x.reshape({6, 5}).transpose(0, 1).contiguous().reshape({5, 6});
    const Tensor weight = x.slice(0, 1, 4);
    const Tensor scale = x.slice(0, 2, 1).reshape({6});
    const RowNorm rms{.weight = scale, .options = {.weight_offset = 1}};
    const ResidualNorm normed = add_rms_norm(x, branch, scale, rms.options);
    const NormLinear added = norm_linear(x, branch, rms, weight, {}, Activation::silu);
    EXPECT_EQ(bits(added.h), bits(normed.h));
    EXPECT_EQ(bits(added.y), bits(linear(normed.y, weight, {}, Activation::silu)));
    const RowNorm layer{.kind = RowNorm::Kind::layer, .weight = scale, .bias = scale};
    const NormLinear gated = norm_gated_linear(x, {}, layer, weight, {}, Gate::geglu);
    EXPECT_TRUE(gated.h.shares_memory_with(x));
    EXPECT_EQ(bits(gated.y), bits(gated_linear(layer_norm(x, scale, scale), weight, {}, Gate::geglu)));
  }
}

TEST(Matmul, RefusesWhatDoesNotFit) {
  const Device device = Device::cpu(1);
  const auto zeros = [&](const Shape& shape) { return Tensor::zeros(shape, DType::f32, device); };
  expect_error([&] { matmul(zeros({2, 3}), zeros({4, 5})); }, "they must be equal");
  expect_error([&] { matmul(zeros({2, 3}), zeros({2, 3, 5})); }, "more dimensions");
  expect_error([&] { matmul(zeros({4, 2, 3}), zeros({2, 3, 5})); }, "must be 1 or that of a");
  expect_error([&] { matmul(zeros({3}), zeros({3, 5})); }, "expected at least 2");
}

// A list of one index per batch would need 8 TiB here.
TEST(Matmul, SharesOneMatrixAmongAnyNumberOfBatches) {
  constexpr int64_t kBatches = int64_t{1} << 40;
  const Tensor planned = matmul(Tensor::zeros({kBatches, 2, 3}, DType::f32, Device::meta()),
                                Tensor::zeros({3, 5}, DType::f32, Device::meta()));
  EXPECT_EQ(planned.shape(), Shape({kBatches, 2, 5}));

  const Device cpu = Device::cpu(1);
  Tape tape;
  Tensor a = Tensor::zeros({kBatches, 0, 3}, DType::f32, cpu);
  Tensor b = Tensor::zeros({3, 5}, DType::f32, cpu);
  tape.watch(a);
  tape.watch(b);
  const Tensor c = matmul(a, b);
  EXPECT_EQ(c.shape(), Shape({kBatches, 0, 5}));
  tape.backward({c}, {Tensor::zeros(c.shape(), DType::f32, cpu)});
  EXPECT_EQ(tape.grad(b).to_vector<float>(), std::vector<float>(15, 0.0F));
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
