// The cluster planner against published step times and memory (tests/golden/cluster/published.json).
#include "lamina/arch/cluster/validation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>

#include "lamina/base/files.h"

namespace lamina::arch {
namespace {

const std::vector<PublishedRow>& published_rows() {
  static const std::vector<PublishedRow> rows = read_published(LAMINA_GOLDEN_DIR "/cluster/published.json");
  return rows;
}

const std::vector<PredictedRow>& predicted_rows() {
  static const std::vector<PredictedRow> rows = [] {
    std::vector<PredictedRow> all;
    for (const PublishedRow& row : published_rows()) all.push_back(predict(row, load_cluster(row.cluster)));
    return all;
  }();
  return rows;
}

TEST(ClusterValidation, timesOutsideTheFitAreWithinTheirBounds) {
  double sum = 0;
  double largest = 0;
  int count = 0;
  for (const PredictedRow& p : predicted_rows()) {
    if (p.row.seconds <= 0) continue;
    std::printf("%-34s %4s published %8.2f s  predicted %8.2f s  %+6.1f %%\n", p.row.name.c_str(),
                p.row.fitted ? "fit" : "", p.row.seconds, p.estimate.seconds.total(), 100 * p.seconds_error);
    if (p.row.fitted) continue;
    sum += std::abs(p.seconds_error);
    largest = std::max(largest, std::abs(p.seconds_error));
    ++count;
  }
  EXPECT_EQ(count, 23);
  EXPECT_LE(sum / count, 0.06);
  EXPECT_LE(largest, 0.15);
}

TEST(ClusterValidation, memoryIsWithinItsBound) {
  int count = 0;
  for (const PredictedRow& p : predicted_rows()) {
    EXPECT_LE(std::abs(p.state_error), 0.10) << p.row.name;
    EXPECT_LE(std::abs(p.activations_error), 0.10) << p.row.name;
    count += (p.row.state_gib > 0 ? 1 : 0) + (p.row.activations_gib > 0 ? 1 : 0);
  }
  EXPECT_EQ(count, 12);
}

/// Step times of all pairs of rows of a paper. TFLOP/s are published with three digits, so times within 1 % are equal.
TEST(ClusterValidation, everyPairIsInOrder) {
  int pairs = 0;
  for (const PredictedRow& a : predicted_rows()) {
    for (const PredictedRow& b : predicted_rows()) {
      const bool same = a.row.source.substr(0, 16) == b.row.source.substr(0, 16);
      if (!same || a.row.seconds <= 0 || b.row.seconds <= 1.01 * a.row.seconds) continue;
      ++pairs;
      EXPECT_LT(a.estimate.seconds.total(), b.estimate.seconds.total()) << a.row.name << " before " << b.row.name;
    }
  }
  EXPECT_GT(pairs, 100);
}

/// Alternatives for the same model on the same devices: also by the share that they differ.
TEST(ClusterValidation, shardedDataParallelismLosesOnManyDevices) {
  const auto seconds = [](const std::string& name) {
    for (const PredictedRow& p : predicted_rows()) {
      if (p.row.name == name) return p.estimate.seconds.total();
    }
    ADD_FAILURE() << name;
    return 0.0;
  };
  EXPECT_GT(seconds("174.6B, ZeRO-3, 1536"), 2.5 * seconds("174.6B, tensor + pipeline, 1536"));
  EXPECT_LT(seconds("174.6B, ZeRO-3, 384"), 1.2 * seconds("174.6B, tensor + pipeline, 384"));
}

TEST(ClusterValidation, theConstantsAreThoseOfTheFit) {
  const Cluster cluster = load_cluster("a100-80gb");
  const FittedEfficiency fitted = fit_efficiency(published_rows(), cluster);
  EXPECT_DOUBLE_EQ(fitted.product, cluster.efficiency.product);
  EXPECT_DOUBLE_EQ(fitted.memory, cluster.efficiency.memory);
  EXPECT_LE(fitted.error, 0.02);
}

TEST(ClusterValidation, theGuideHasTheseTables) {
  const std::string guide = read_text(std::string(LAMINA_SOURCE_DIR) + "/docs/guides/clusters.md");
  EXPECT_NE(guide.find(validation_markdown(predicted_rows())), std::string::npos)
      << "replace the tables in docs/guides/clusters.md by the output of: lamina bench plan "
         "tests/golden/cluster/published.json";
}

}  // namespace
}  // namespace lamina::arch
