// Activation values and derivatives against f64 golden values from PyTorch.
#include <gtest/gtest.h>

#include "lamina/autograd/tape.h"
#include "lamina/ops/activation/activation.h"
#include "support/module_golden.h"

namespace lamina {
namespace {

TEST(activation_golden, EqualsPyTorchInValueAndDerivative) {
  const Device device = Device::cpu(2);
  const auto file = testing::golden_tensors(device);
  const auto cases = testing::golden_cases("activation");
  ASSERT_EQ(cases.size(), 9U);
  for (const auto& entry : cases) {
    const auto name = entry.at("name").get<std::string>();
    const auto key = entry.at("key").get<std::string>();
    const auto function = kind_from_name<Activation>(name);
    ASSERT_TRUE(function.has_value()) << name;
    Tape tape;
    Tensor x = file.tensor("act.x").clone();
    tape.watch(x);
    const Tensor y = ops::activation(x, *function);
    // If a sum cancels, the rounding errors of its terms remain. Terms reach 1 in the value and 2 in the derivative.
    EXPECT_LE(testing::worst_ulps(y.detach(), file.tensor(key + ".y"), 1.0), 4.0) << name;
    tape.backward({y}, {Tensor::full(x.shape(), 1.0, DType::f64, device)});
    EXPECT_LE(testing::worst_ulps(tape.grad(x), file.tensor(key + ".dy"), 2.0), 4.0) << name;
  }
}

}  // namespace
}  // namespace lamina
