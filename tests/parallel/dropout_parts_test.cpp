// Dropout of a part of a tensor: the mask of the whole, from any position on.
#include <gtest/gtest.h>

#include "lamina/ops/dropout/dropout.h"

namespace lamina::testing {
namespace {

TEST(Dropout, PartsHaveTheMaskOfTheWhole) {
  const Device device = Device::cpu(2);
  const Tensor x = Tensor::full({5000}, 1.0, DType::f32, device);
  const RandomKey key{3, 9};
  const std::vector<float> whole = ops::dropout(x, 0.3, key).to_vector<float>();
  for (const int64_t begin : {0, 1, 2, 3, 4, 511, 513, 1021, 4999}) {
    const std::vector<float> part = ops::dropout(x.slice(0, begin, 5000 - begin), 0.3, key, begin).to_vector<float>();
    EXPECT_EQ(part, std::vector<float>(whole.begin() + begin, whole.end())) << "from " << begin;
  }
  EXPECT_THROW(ops::dropout(x, 0.3, key, -1), Error);
}

}  // namespace
}  // namespace lamina::testing
