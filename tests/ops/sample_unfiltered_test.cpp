#include "lamina/ops/sampling/sample_unfiltered.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "lamina/base/philox.h"
#include "lamina/ops/sampling/candidates.h"

namespace lamina::ops {
namespace {

int64_t sample_by_list(const std::vector<double>& logits, const std::array<uint32_t, 4>& words) {
  Candidates list;
  for (size_t id = 0; id < logits.size(); ++id) {
    if (logits[id] > -INFINITY) list.push_back({static_cast<int64_t>(id), logits[id], 0});
  }
  if (list.empty()) return -1;
  normalise(list);
  return sample_from(std::move(list), words);
}

TEST(SampleUnfiltered, DrawsTheTokensOfTheList) {
  std::mt19937 random(1);
  for (const double spread : {0.0, 0.5, 8.0, 200.0}) {
    for (uint64_t drawn = 0; drawn < 300; ++drawn) {
      std::vector<double> logits(1 + random() % 700);
      for (double& logit : logits) {
        logit = spread * (static_cast<double>(random()) / 4294967296.0 - 0.5);
        if (random() % 7 == 0) logit = -INFINITY;
        if (spread == 200.0 && random() % 500 == 0) logit = INFINITY;
      }
      const auto words = philox({3, 0}, drawn);
      const int64_t expected = sample_by_list(logits, words);
      EXPECT_EQ(sample_unfiltered(logits, words), expected) << spread << " " << drawn;
    }
  }
}

TEST(SampleUnfiltered, NoTokenIsAllowed) {
  std::vector<double> logits(5, -INFINITY);
  EXPECT_EQ(sample_unfiltered(logits, {1, 2, 3, 4}), -1);
  EXPECT_EQ(sample_unfiltered({}, {1, 2, 3, 4}), -1);
}

}  // namespace
}  // namespace lamina::ops
