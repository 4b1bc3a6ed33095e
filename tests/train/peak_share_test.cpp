// A share of a measured peak is never above 100 %.
#include "lamina/train/peak_share.h"

#include <gtest/gtest.h>

namespace lamina::train {
namespace {

TEST(PeakShare, MeasuresAgainWhenARateExceedsThePeak) {
  int calls = 0;
  PeakShare share([&] { return ++calls == 1 ? 40.0 : 100.0; });  // the machine was busy the first time
  EXPECT_EQ(share.of(20), 0.5);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(share.of(80), 0.8);
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(share.of(20), 0.2);
  EXPECT_EQ(share.peak(), 100);
}

TEST(PeakShare, IsUnknownIfNoMeasurementReachesTheRate) {
  int calls = 0;
  PeakShare share(
      [&] {
        ++calls;
        return 40.0;
      },
      3);
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(share.of(85));
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(share.of(30), 0.75);
  EXPECT_FALSE(share.of(0));
}

}  // namespace
}  // namespace lamina::train
