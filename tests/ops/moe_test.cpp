#include <gtest/gtest.h>

#include <limits>

#include "lamina/autograd/tape.h"
#include "lamina/ops/moe/dispatch.h"
#include "lamina/ops/moe/grouped_linear.h"
#include "lamina/ops/moe/route.h"
#include "lamina/ops/moe/router_loss.h"
#include "support/error_of.h"
#include "support/op_run.h"

namespace lamina::testing {
namespace {

const Device kMoeDevice = Device::cpu(2);

Tensor numbers(std::vector<double> values, const Shape& shape, DType dtype = DType::f32) {
  return make_tensor(values, shape, dtype, kMoeDevice);
}

std::vector<int64_t> sequence(std::initializer_list<int64_t> values) { return values; }

TEST(RouteTopK, TiesGoToTheLowerIndexAndNanComesLast) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto tied = ops::route_top_k(numbers({1, 2, 2, 2, 0, 0, 0, 0}, {2, 4}), {.k = 2});
  EXPECT_EQ(tied.indices.to_vector<int64_t>(), sequence({1, 2, 0, 1}));
  EXPECT_EQ(tied.counts.to_vector<int64_t>(), sequence({1, 2, 1, 0}));
  const auto broken = ops::route_top_k(numbers({nan, 2, nan, 1}, {1, 4}), {.k = 3});
  EXPECT_EQ(broken.indices.to_vector<int64_t>(), sequence({1, 3, 0}));
  const auto hopeless = ops::route_top_k(numbers({nan, nan, nan, nan}, {1, 4}), {.k = 2, .groups = 2});
  EXPECT_EQ(hopeless.indices.to_vector<int64_t>(), sequence({0, 1}));
}

TEST(RouteTopK, TiedGroupsPreferTheLowerExperts) {
  const auto tied =
      ops::route_top_k(numbers({0, 0, 0, 0, 0, 0, 0, 0}, {1, 8}),
                       {.k = 3, .score = ops::RouterScore::sigmoid, .groups = 4, .chosen_groups = 2, .group_best = 2});
  EXPECT_EQ(tied.indices.to_vector<int64_t>(), sequence({0, 1, 2}));
}

TEST(RouteTopK, TheBiasChangesTheChoiceOnly) {
  const auto routed = ops::route_top_k(numbers({3, 0, 0}, {1, 3}), {.k = 1, .score = ops::RouterScore::sigmoid},
                                       numbers({0, 0, 5}, {3}));
  EXPECT_EQ(routed.indices.to_vector<int64_t>(), sequence({2}));
  EXPECT_EQ(routed.weights.to_vector<double>()[0], 0.5);
}

TEST(RouteTopK, RefusesImpossibleOptions) {
  const Tensor logits = Tensor::zeros({2, 8}, DType::f32, kMoeDevice);
  expect_error([&] { ops::route_top_k(logits, {.k = 9}); }, "k is 9 with 8 experts");
  expect_error([&] { ops::route_top_k(logits, {.k = 0}); }, "k is 0");
  expect_error([&] { ops::route_top_k(logits, {.k = 1, .groups = 3}); }, "groups must divide");
  expect_error([&] { ops::route_top_k(logits, {.k = 3, .groups = 4, .chosen_groups = 1}); }, "hold only 2");
  expect_error([&] { ops::route_top_k(logits, {.k = 1, .scale = std::nan("")}); }, "scale is nan");
  expect_error([&] { ops::route_top_k(logits, {.k = 1, .groups = 4, .group_best = 3}); }, "group_best is 3");
  expect_error([&] { ops::route_top_k(logits, {.k = 1}, Tensor::zeros({7}, DType::f32, kMoeDevice)); }, "bias is [7]");
}

TEST(Dispatch, RefusesExpertsThatDoNotExist) {
  const Tensor bad = Tensor::from(std::vector<int64_t>{0, 1, 2, 4}, {2, 2}, kMoeDevice);
  expect_error([&] { ops::plan_dispatch(bad, 4); }, "choice 1 of token 1 is expert 4");
  expect_error([&] { ops::balance_loss(Tensor::zeros({2, 3}, DType::f32, kMoeDevice), bad); }, "is expert 4");
  expect_error([&] { ops::plan_dispatch(bad, 5, -1); }, "capacity is -1");
  expect_error(
      [&] {
        ops::dispatch(Tensor::zeros({3, 4}, DType::f32, kMoeDevice), ops::plan_dispatch(bad, 5));
      },
      "expected [2, width]");
  EXPECT_EQ(ops::expert_capacity(10, 2, 3, 1.25), 9);
}

TEST(GroupedLinear, RefusesOffsetsOutsideTheRows) {
  const Tensor x = Tensor::zeros({4, 2}, DType::f32, kMoeDevice);
  const Tensor weight = Tensor::zeros({2, 3, 2}, DType::f32, kMoeDevice);
  const auto with = [&](std::vector<int64_t> offsets) {
    ops::grouped_linear(x, weight, Tensor::from(offsets, {3}, kMoeDevice));
  };
  expect_error([&] { with({0, 5, 5}); }, "offsets[1] is 5");
  expect_error([&] { with({0, 3, 2}); }, "offsets[2] is 2 after 3");
  expect_error([&] { with({-1, 3, 4}); }, "offsets[0] is -1");
}

TEST(GroupedLinear, AddsToTheGradientOfAWeightUsedTwice) {
  Tensor weight = numbers({1, 2, 3, 4}, {1, 2, 2});
  const Tensor x = numbers({1, 0, 0, 1}, {2, 2});
  const Tensor offsets = Tensor::from(std::vector<int64_t>{0, 2}, {2}, kMoeDevice);
  Tape tape;
  tape.watch(weight);
  const Tensor ones = Tensor::full({2, 2}, 1.0, DType::f32, kMoeDevice);
  for (int repeat = 0; repeat < 3; ++repeat) tape.backward({ops::grouped_linear(x, weight, offsets)}, {ones});
  EXPECT_EQ(tape.grad(weight).to_vector<double>(), std::vector<double>(4, 3.0));
}

/// A single expert that receives every token is a plain feed-forward: same outputs, same gradients.
TEST(Experts, OneExpertIsThePlainLayer) {
  const int64_t tokens = 37;
  const auto draw = [](const Shape& shape, uint64_t seed) {
    return make_tensor(output_gradient(seed, 0, static_cast<size_t>(shape.numel()), DType::f32), shape, DType::f32,
                       kMoeDevice);
  };
  Tensor x = draw({tokens, 12}, 1);
  Tensor w1 = draw({1, 20, 12}, 2);
  Tensor w2 = draw({1, 12, 20}, 3);
  const Tensor logits = draw({tokens, 1}, 4);
  const Tensor dy = draw({tokens, 12}, 5);
  const auto train = [&](bool routed) {
    Tape tape;
    Tensor leaves[] = {x.clone(), w1.clone(), w2.clone()};
    for (Tensor& leaf : leaves) tape.watch(leaf);
    Tensor y;
    if (routed) {
      const auto routing = ops::route_top_k(logits, {.k = 1, .normalize = true});
      const auto plan = ops::plan_dispatch(routing.indices, 1);
      const Tensor hidden = ops::grouped_linear(ops::dispatch(leaves[0], plan), leaves[1], plan.offsets);
      y = ops::combine(ops::grouped_linear(hidden, leaves[2], plan.offsets), routing.weights, plan);
    } else {
      const Tensor all = Tensor::from(std::vector<int64_t>{0, tokens}, {2}, kMoeDevice);
      y = ops::grouped_linear(ops::grouped_linear(leaves[0], leaves[1], all), leaves[2], all);
    }
    tape.backward({y}, {dy});
    std::vector<std::vector<double>> result{y.to_vector<double>()};
    for (const Tensor& leaf : leaves) result.push_back(tape.grad(leaf).to_vector<double>());
    return result;
  };
  EXPECT_EQ(train(true), train(false));
}

}  // namespace
}  // namespace lamina::testing
