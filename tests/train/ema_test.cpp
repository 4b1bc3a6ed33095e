#include "lamina/train/ema.h"

#include <gtest/gtest.h>

namespace lamina::train {
namespace {

TEST(Ema, AveragesLeaveEvenIfAnExceptionEndsTheEvaluation) {
  const Device device = Device::cpu(1);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Tensor weight = Tensor::full({3}, 1.0, dtype, device);
    Ema ema({{"weight", weight}}, 0.9);
    weight.fill_(2.0);
    ema.update(1);
    const auto evaluate = [&] {
      const Ema::InPlace averages(&ema);
      EXPECT_NE(weight.to_vector<double>(), std::vector<double>(3, 2.0));
      throw Error("evaluation failed");
    };
    EXPECT_THROW(evaluate(), Error);
    EXPECT_EQ(weight.to_vector<double>(), std::vector<double>(3, 2.0));
  }
  const Ema::InPlace nothing(nullptr);
}

}  // namespace
}  // namespace lamina::train
