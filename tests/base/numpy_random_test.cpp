#include "lamina/base/numpy_random.h"

#include <gtest/gtest.h>

#include <numeric>

namespace lamina::testing {
namespace {

std::vector<int> counted(int first, int count) {
  std::vector<int> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), first);
  return values;
}

/// Expected values: numpy.random.seed(s), then permutation(10) and permutation(arange(5, 12)), with NumPy 1.24.
TEST(NumpyRandom, PermutationsAreThoseOfNumpy) {
  struct Case {
    uint32_t seed;
    std::vector<int> ten;
    std::vector<int> seven;
  };
  const std::vector<Case> cases = {
      {0, {2, 8, 4, 9, 1, 6, 7, 3, 0, 5}, {8, 6, 7, 11, 10, 5, 9}},
      {1, {2, 9, 6, 4, 0, 3, 1, 7, 8, 5}, {11, 8, 5, 7, 6, 9, 10}},
      {42, {8, 1, 5, 0, 7, 2, 9, 4, 3, 6}, {9, 6, 5, 8, 10, 11, 7}},
      {123, {4, 0, 7, 5, 8, 3, 1, 6, 9, 2}, {8, 10, 9, 7, 11, 5, 6}},
  };
  for (const Case& expected : cases) {
    NumpyGenerator random(expected.seed);
    EXPECT_EQ(random.permutation(counted(0, 10)), expected.ten) << expected.seed;
    EXPECT_EQ(random.permutation(counted(5, 7)), expected.seven) << expected.seed;
  }
}

TEST(NumpyRandom, LongPermutationsUseAsManyWordsAsNumpy) {
  NumpyGenerator random(7);
  const std::vector<int> first = random.permutation(counted(0, 1000));
  EXPECT_EQ(std::vector<int>(first.begin(), first.begin() + 8),
            (std::vector<int>{778, 334, 271, 802, 216, 408, 812, 94}));
  const std::vector<int> second = random.permutation(counted(0, 70000));
  EXPECT_EQ(std::vector<int>(second.begin(), second.begin() + 5),
            (std::vector<int>{15341, 65949, 27204, 38443, 46025}));
}

TEST(NumpyRandom, NothingAndOneElementDrawNoWord) {
  NumpyGenerator random(3);
  NumpyGenerator fresh(3);
  EXPECT_TRUE(random.permutation(std::vector<int>{}).empty());
  EXPECT_EQ(random.permutation(std::vector<int>{4}), std::vector<int>{4});
  EXPECT_EQ(random.random32(), fresh.random32());
}

}  // namespace
}  // namespace lamina::testing
