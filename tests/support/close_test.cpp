#include "support/close.h"

#include <gtest/gtest-spi.h>

namespace lamina::testing {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(Close, NanIsAnInfiniteError) {
  const std::vector<double> truth{1, -2, 3};
  for (size_t at = 0; at < truth.size(); ++at) {
    std::vector<double> ours = truth;
    ours[at] = kNan;
    EXPECT_EQ(largest_error(ours, truth), kInfinity);
    EXPECT_EQ(largest_error(truth, ours), kInfinity);
    EXPECT_FALSE(largest_error(truth, truth) <= rounding_tolerance(ours, 10, DType::f32));
  }
  EXPECT_EQ(largest_error({kNan, kNan, kNan}, {kNan, kNan, kNan}), kInfinity);
}

TEST(Close, SizesMustAgreeAndEqualInfinitiesDo) {
  EXPECT_EQ(largest_error({1, 2}, {1}), kInfinity);
  EXPECT_EQ(largest_error({kInfinity, -kInfinity}, {kInfinity, -kInfinity}), 0);
  EXPECT_EQ(largest_error({kInfinity}, {-kInfinity}), kInfinity);
}

TEST(Close, ExpectAsCloseFailsOnNan) {
  EXPECT_NONFATAL_FAILURE(expect_as_close({kNan, 1}, {1, 1}, {1, 1}, DType::f32, "nan"), "nan");
  EXPECT_NONFATAL_FAILURE(expect_as_close({1, 1}, {kNan, 1}, {1, 1}, DType::f32, "nan"), "nan");
  expect_as_close({1, 1}, {1, 1}, {1, 1}, DType::f32, "equal");
}

}  // namespace
}  // namespace lamina::testing
