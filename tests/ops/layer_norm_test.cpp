#include "lamina/ops/norm/layer_norm.h"

#include <gtest/gtest.h>

#include <limits>

#include "support/error_of.h"

namespace lamina::ops {
namespace {

using testing::error_of;
using testing::expect_error;

TEST(LayerNorm, SaysWhatIsWrong) {
  const Device device = Device::cpu(1);
  const Tensor x = Tensor::zeros({2, 8}, DType::f32, device);
  const Tensor five = Tensor::zeros({5}, DType::f32, device);
  EXPECT_EQ(error_of([&] { layer_norm(x, five); }),
            "layer_norm: weight [5] has 5 elements, the last dimension of x [2,8] is 8; load the norm's weight of the "
            "same model or fix d_model");
  expect_error([&] { layer_norm(x, {}, five); }, "bias [5] has 5 elements");
  expect_error([&] { layer_norm(x, {}, {}, -1.0); }, "eps is -1; expected a number >= 0");
  expect_error([&] { layer_norm(x, {}, {}, std::numeric_limits<double>::quiet_NaN()); }, "eps is nan");
  expect_error([&] { add_layer_norm(x, Tensor()); }, "residual is undefined");
  expect_error([&] { add_layer_norm(x, five); }, "residual is [5]; expected [2,8]");
}

/// The variance is computed around the mean, so a shift leaves the result bit-identical as long as all sums are exact.
/// E[x²] − E[x]² would cancel catastrophically.
TEST(LayerNorm, AShiftOfAllElementsChangesNothing) {
  const Device device = Device::cpu(1);
  std::vector<float> near(64);
  std::vector<float> far(64);
  for (size_t i = 0; i < near.size(); ++i) {
    near[i] = static_cast<float>(i * 37 % 17) - 8.0F;
    far[i] = near[i] + 32768.0F;
  }
  EXPECT_EQ(layer_norm(Tensor::from(near, {1, 64}, device)).to_vector<float>(),
            layer_norm(Tensor::from(far, {1, 64}, device)).to_vector<float>());
}

}  // namespace
}  // namespace lamina::ops
