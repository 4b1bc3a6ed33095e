// The mechanism that forces a kernel. On a GPU the operators' cases run every kernel (op_checks.cpp).
#include "lamina/ops/kernel_dispatch.h"

#include <gtest/gtest.h>

#include "lamina/ops/attention/attention.h"
#include "lamina/ops/attention/attention_step.h"
#include "support/error_of.h"
#include "support/random_tensor.h"

namespace lamina::ops {
namespace {

using testing::expect_error;
using testing::random_tensor;

/// Accepts even numbers, odd numbers below 10 only in `run`, and everything in the last row.
struct Number {
  int value;
  std::string by;
};
const KernelRow<Number> kTable[] = {
    {"one_launch", [](Number& n) { return n.value % 2 == 0; }, [](Number& n) { return n.value != 4; },
     [](Number& n) {
       n.by += "one_launch";
       return true;
     }},
    {"two_launches", [](Number&) { return true; }, [](Number&) { return true; },
     [](Number& n) {
       if (n.value >= 10) return false;
       n.by += "two_launches";
       return true;
     }},
    {"composed", [](Number&) { return true; }, [](Number&) { return true; },
     [](Number& n) {
       n.by += "composed";
       return true;
     }},
};
constexpr const char* kOp = "attention_sublayer_step";

std::string kernel_of(int value, const Device& device) {
  Number number{value, ""};
  dispatch(kOp, kTable, device, number);
  return number.by;
}

TEST(Dispatch, TakesTheFirstRowThatSupportsAndPrefersTheCall) {
  const Device device = Device::cpu(1);
  EXPECT_EQ(kernel_of(2, device), "one_launch");
  EXPECT_EQ(kernel_of(3, device), "two_launches");
  EXPECT_EQ(kernel_of(4, device), "two_launches") << "the first row supports it, but is not preferred";
  EXPECT_EQ(kernel_of(11, device), "composed") << "the second row declines at launch";
}

TEST(Dispatch, AForcedKernelRunsOrThrows) {
  const Device device = Device::cpu(1);
  {
    const ForcedKernel forced(device, kOp, "one_launch");
    EXPECT_EQ(kernel_of(4, device), "one_launch") << "forcing ignores preference";
    EXPECT_THROW(kernel_of(3, device), UnsupportedKernel);
    {
      const ForcedKernel inner(device, kOp, "two_launches");
      EXPECT_EQ(kernel_of(2, device), "two_launches");
      EXPECT_THROW(kernel_of(12, device), UnsupportedKernel);
    }
    EXPECT_EQ(kernel_of(2, device), "one_launch") << "the outer scope is back";
    EXPECT_EQ(kernel_of(3, Device::cpu(1)), "two_launches") << "another device is not affected";
  }
  EXPECT_EQ(kernel_of(4, device), "two_launches");
}

TEST(Dispatch, UnknownNamesAreErrors) {
  const Device device = Device::cpu(1);
  expect_error([&] { ForcedKernel(device, "attention_forward", "wgmna"); }, "cudnn wgmma mma tiles cpu");
  expect_error([&] { ForcedKernel(device, "softmax", "mma"); }, "softmax");
}

TEST(Dispatch, AttentionOnTheCpuHasOneKernel) {
  const Device device = Device::cpu(2);
  const Tensor q = random_tensor({1, 9, 2, 8}, 1, DType::f32).to(device);
  const std::vector<float> expected = attention(q, q, q).to_vector<float>();
  const ForcedKernel forced(q.device(), "attention_forward", "cpu");
  EXPECT_EQ(attention(q, q, q).to_vector<float>(), expected);
  const ForcedKernel other(q.device(), "attention_forward", "mma");
  EXPECT_THROW(attention(q, q, q), UnsupportedKernel);
}

TEST(Dispatch, AStepOnTheCpuIsComposed) {
  const Device device = Device::cpu(2);
  const Tensor qkv = Tensor::full({1, 1, 6, 8}, 0.5, DType::f32, device);
  const auto step = [&] {
    Tensor cache = Tensor::zeros({1, 2, 4, 8}, DType::f32, device);
    return attention_step(qkv, cache, cache.clone(), Tensor::zeros({1}, DType::i64, device)).to_vector<float>();
  };
  const std::vector<float> expected = step();
  const ForcedKernel forced(device, "attention_step", "composed");
  EXPECT_EQ(step(), expected);
  const ForcedKernel other(device, "attention_step", "one_launch");
  EXPECT_THROW(step(), UnsupportedKernel);
}

}  // namespace
}  // namespace lamina::ops
