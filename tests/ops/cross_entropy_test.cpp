#include "lamina/ops/loss/cross_entropy_kernel.h"

#include <gtest/gtest.h>

#include <limits>

#include "lamina/autograd/tape.h"
#include "lamina/ops/loss/softmax.h"
#include "support/error_of.h"

namespace lamina::ops {
namespace {

using testing::expect_error;

struct Head {
  Device device = Device::cpu(2);
  Tensor x = Tensor::full({4, 3}, 0.5, DType::f32, device);
  Tensor weight = Tensor::full({5, 3}, 0.25, DType::f32, device);
  Tensor targets(std::vector<int64_t> values) const {
    const auto count = static_cast<int64_t>(values.size());
    return Tensor::from(values, {count}, device);
  }
};

TEST(CrossEntropy, NamesATargetThatIsNoClassAndItsPosition) {
  const Head h;
  for (const int64_t bad : {int64_t{5}, int64_t{-1}, std::numeric_limits<int64_t>::max()}) {
    const std::string expected = str("target ", bad, " at position 2 is outside [0, 5)");
    const Tensor targets = h.targets({0, 1, bad, 2});
    const Tensor logits = Tensor::zeros({4, 5}, DType::f32, h.device);
    expect_error([&] { cross_entropy(logits, targets); }, expected);
    expect_error([&] { linear_cross_entropy(h.x, h.weight, targets); }, expected);
  }
}

TEST(CrossEntropy, RefusesWhatDoesNotFit) {
  const Head h;
  const Tensor targets = h.targets({0, 1, 2, 3});
  expect_error([&] { linear_cross_entropy(h.x, h.weight, h.targets({0, 1})); }, "targets is [2]; expected [4]");
  expect_error([&] { linear_cross_entropy(h.x, h.weight, h.x); }, "targets is f32; expected i64");
  expect_error(
      [&] {
        linear_cross_entropy(h.x, Tensor::zeros({5, 4}, DType::f32, h.device), targets);
      },
      "weight is [5,4]");
  expect_error([&] { linear_cross_entropy(h.x, h.weight, targets, {}, h.x); }, "bias is [4,3]; expected [5]");
  expect_error([&] { linear_cross_entropy(h.x, h.weight, targets, {.label_smoothing = 1.5}); },
               "label_smoothing is 1.5");
  expect_error([&] { linear_cross_entropy(h.x, h.weight, targets, {.z_loss = -1}); }, "z_loss is -1");
  expect_error([&] { linear_cross_entropy(h.x, h.weight, targets, {.soft_cap = -2}); }, "soft_cap is -2");
  const double nan = std::numeric_limits<double>::quiet_NaN();
  expect_error([&] { linear_cross_entropy(h.x, h.weight, targets, {.logit_scale = nan}); }, "logit_scale is nan");
}

TEST(CrossEntropy, NothingToLearnFromGivesZero) {
  Head h;
  Tape tape;
  tape.watch(h.x);
  tape.watch(h.weight);
  const Tensor loss = linear_cross_entropy(h.x, h.weight, h.targets({-100, -100, -100, -100}));
  EXPECT_EQ(loss.item(), 0.0);
  tape.backward(loss);
  EXPECT_EQ(tape.grad(h.x).to_vector<float>(), std::vector<float>(12, 0.0F));
  EXPECT_EQ(tape.grad(h.weight).to_vector<float>(), std::vector<float>(15, 0.0F));
}

TEST(LinearCrossEntropy, ASecondBackwardOverAKeptRecordAddsTheSameAgain) {
  Head h;
  Tape tape;
  tape.watch(h.x);
  const Tensor loss = linear_cross_entropy(h.x, h.weight, h.targets({0, 1, 2, 3}), {.z_loss = 0.1});
  tape.backward(loss, true);
  const auto once = tape.grad(h.x).to_vector<float>();
  tape.zero_grad();
  tape.backward(loss);
  EXPECT_EQ(tape.grad(h.x).to_vector<float>(), once);
}

TEST(LinearCrossEntropy, HoldsLessThanAnEighthOfTheLogits) {
  const Device device = Device::cpu(2);
  const Tensor x = Tensor::zeros({2048, 4}, DType::f32, device);
  Tensor weight = Tensor::zeros({1000, 4}, DType::f32, device);
  const Tensor targets = Tensor::zeros({2048}, DType::i64, device);
  Tape tape;
  tape.watch(weight);
  const int64_t before = device.allocator().counters().live;
  device.allocator().reset_peak();
  tape.backward(linear_cross_entropy(x, weight, targets));
  EXPECT_LT(device.allocator().counters().peak - before, int64_t{2048} * 1000 * 4 / 8);
}

TEST(Softmax, MinusInfinityIsAProbabilityOfZero) {
  const Device device = Device::cpu(1);
  const float low = -std::numeric_limits<float>::infinity();
  const Tensor x = Tensor::from(std::vector<float>{low, 1, 1, low}, {1, 4}, device);
  EXPECT_EQ(softmax(x).to_vector<float>(), (std::vector<float>{0, 0.5F, 0.5F, 0}));
  EXPECT_EQ(log_softmax(x).to_vector<float>()[0], low);
}

}  // namespace
}  // namespace lamina::ops
