#include "lamina/ops/dropout/dropout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace lamina::ops {
namespace {

TEST(Dropout, RefusesWhatIsNoProbability) {
  const Tensor x = Tensor::zeros({4}, DType::f32, Device::cpu(1));
  EXPECT_THROW(dropout(x, -0.1, {}), Error);
  EXPECT_THROW(dropout(x, 1.5, {}), Error);
  EXPECT_THROW(dropout(x, std::numeric_limits<double>::quiet_NaN(), {}), Error);
}

TEST(Dropout, KeepsTheShareItShouldAndScalesIt) {
  const Tensor x = Tensor::full({400001}, 1.0, DType::f32, Device::cpu(2));
  for (const double p : {0.1, 0.5, 0.9}) {
    const auto y = dropout(x, p, {7, 11}).to_vector<float>();
    const auto kept = static_cast<double>(std::count_if(y.begin(), y.end(), [](float v) { return v != 0; }));
    const double expected = (1 - p) * static_cast<double>(y.size());
    const double deviation = std::sqrt(p * expected);
    EXPECT_NEAR(kept, expected, 5 * deviation) << p;
    EXPECT_EQ(*std::max_element(y.begin(), y.end()), static_cast<float>(1.0 / (1.0 - p)));
  }
}

TEST(Dropout, OtherStreamsDrawOtherMasks) {
  const Tensor x = Tensor::full({1000}, 1.0, DType::f32, Device::cpu(1));
  const auto one = dropout(x, 0.5, {7, 1}).to_vector<float>();
  EXPECT_EQ(one, dropout(x, 0.5, {7, 1}).to_vector<float>());
  EXPECT_NE(one, dropout(x, 0.5, {7, 2}).to_vector<float>());
  EXPECT_NE(one, dropout(x, 0.5, {8, 1}).to_vector<float>());
}

}  // namespace
}  // namespace lamina::ops
