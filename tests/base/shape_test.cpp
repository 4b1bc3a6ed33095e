#include "lamina/base/shape.h"

#include <gtest/gtest.h>

#include <limits>

#include "lamina/base/error.h"
#include "support/close.h"

namespace lamina {
namespace {

using testing::expect_error;
constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();

TEST(shape, CountsElements) {
  EXPECT_EQ(Shape().numel(), 1);
  EXPECT_EQ((Shape{2, 3, 4}).numel(), 24);
  EXPECT_EQ((Shape{2, 0, 4}).numel(), 0);
  EXPECT_EQ((Shape{2, 3, 4}).rows(), 6);
  EXPECT_EQ((Shape{kLargest}).numel(), kLargest);
  expect_error([] { Shape().rows(); }, "a scalar has no rows");
}

TEST(shape, RefusesNegativeAndOverflowingExtents) {
  expect_error([] { (Shape{2, -3}).numel(); }, "negative extent -3");
  expect_error([] { (Shape{kLargest, 2}).numel(); }, "more elements than 2^63");
  expect_error([] { (Shape{int64_t{1} << 32, int64_t{1} << 32}).numel(); }, "more elements");
  expect_error([] { (Shape{0, -1}).numel(); }, "negative extent");
}

TEST(shape, AnEmptyShapeIsTreatedAlikeWhereverTheZeroStands) {
  EXPECT_EQ((Shape{0, kLargest}).numel(), 0);
  EXPECT_EQ((Shape{kLargest, 0}).numel(), 0);
  expect_error([] { (Shape{0, kLargest, kLargest}).numel(); }, "more elements");
  expect_error([] { (Shape{kLargest, kLargest, 0}).numel(); }, "more elements");
}

TEST(shape, AxesCountFromBothEnds) {
  const Shape shape{2, 3, 4};
  EXPECT_EQ(shape[0], 2);
  EXPECT_EQ(shape[-1], 4);
  EXPECT_EQ(shape[-3], 2);
  expect_error([&] { shape[3]; }, "axis 3 is outside [-3, 3)");
  expect_error([&] { shape[-4]; }, "axis -4 is outside");
  expect_error([] { Shape()[0]; }, "rank 0");
  expect_error([&] { shape[std::numeric_limits<int>::min()]; }, "is outside");
  expect_error([&] { shape[std::numeric_limits<int>::max()]; }, "is outside");
}

TEST(shape, HoldsAtMostEightExtents) {
  Shape shape;
  for (int i = 0; i < Shape::kMaxRank; ++i) shape.push_back(2);
  EXPECT_EQ(shape.numel(), 256);
  expect_error([&] { shape.push_back(2); }, "at most 8 dimensions");
  expect_error([] { Shape{1, 1, 1, 1, 1, 1, 1, 1, 1}; }, "at most 8");
}

TEST(shape, ComparesAndPrints) {
  EXPECT_EQ((Shape{2, 3}), (Shape{2, 3}));
  EXPECT_NE((Shape{2, 3}), (Shape{2, 3, 1}));
  EXPECT_NE((Shape{2, 3}), (Shape{3, 2}));
  EXPECT_EQ(str(Shape{2, 3}), "[2,3]");
  EXPECT_EQ(str(Shape()), "[]");
}

TEST(shape, ContiguousStrides) {
  EXPECT_EQ(contiguous_strides({2, 3, 4}), (Shape{12, 4, 1}));
  EXPECT_EQ(contiguous_strides({}), Shape());
  EXPECT_EQ(contiguous_strides({0, 5}).rank(), 2);
  expect_error([] { contiguous_strides({kLargest, kLargest, 0}); }, "more elements");
  expect_error([] { contiguous_strides({-1, 2}); }, "negative extent");
}

}  // namespace
}  // namespace lamina
