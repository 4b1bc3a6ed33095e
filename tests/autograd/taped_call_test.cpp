#include "lamina/autograd/taped_call.h"

#include <gtest/gtest.h>

#include "lamina/ops/elementwise/elementwise.h"

namespace lamina {
namespace {

using Values = std::vector<float>;

// The product x·y has the gradients y·g and x·g, however often backward() runs.
TEST(TapedCall, RepeatsBackwardAlone) {
  const Device device = Device::cpu(1);
  const Tensor x = Tensor::from(Values{1, 2, 3}, {3}, device);
  const Tensor y = Tensor::from(Values{4, 5, 6}, {3}, device);
  int calls = 0;
  TapedCall call(
      {x, {y, DType::f64}},
      [&](const std::vector<Tensor>& in) {
        ++calls;
        return std::vector<Tensor>{ops::mul(in[0], in[1])};
      },
      [](const Tensor& z) { return Tensor::full(z.shape(), 2, z.dtype(), z.device()); });
  for (int round = 0; round < 3; ++round) {
    call.backward();
    EXPECT_EQ(call.grad(0).to_vector<float>(), (Values{8, 10, 12}));
    EXPECT_EQ(call.grad(1).to_vector<float>(), (Values{2, 4, 6}));
  }
  EXPECT_EQ(call.grad(1).dtype(), DType::f64);
  EXPECT_EQ(calls, 1);
  EXPECT_FALSE(x.grad_link());
}

TEST(TapedCall, RunsForwardAgainWithBackward) {
  const Device device = Device::cpu(1);
  const Tensor x = Tensor::from(Values{1, 2, 3}, {3}, device);
  TapedCall call(
      {x}, [](const std::vector<Tensor>& in) { return std::vector<Tensor>{ops::mul(in[0], in[0])}; },
      [](const Tensor& z) { return Tensor::full(z.shape(), 1, z.dtype(), z.device()); });
  call.forward_and_backward();
  EXPECT_EQ(call.grad(0).to_vector<float>(), (Values{2, 4, 6}));
  x.detach().copy_(Tensor::from(Values{2, 3, 4}, {3}, device));
  call.forward_and_backward();
  EXPECT_EQ(call.grad(0).to_vector<float>(), (Values{4, 6, 8}));
}

}  // namespace
}  // namespace lamina
