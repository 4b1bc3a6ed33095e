// Scaling fits against planted laws.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "lamina/arch/presets.h"
#include "lamina/arch/resolve.h"
#include "lamina/lab/report/report.h"
#include "lamina/lab/run/findings.h"
#include "lamina/lab/run/scaling_fit.h"
#include "support/error_of.h"

namespace lamina::lab {
namespace {

using lamina::testing::error_of;

struct Planted {
  double irreducible = 1.2;
  double exponent = 0.3;
  double noise = 0.005;
  int sizes = 4;
  int seeds = 5;
};

/// Losses of a planted law. The noise of a seed has a part that all sizes share, as runs of one seed share batches.
std::vector<ScalingPoint> points_of(const Planted& law, std::mt19937_64& random) {
  std::normal_distribution<double> normal(0, 1);
  std::vector<ScalingPoint> points;
  for (int seed = 0; seed < law.seeds; ++seed) {
    const double shared = law.noise * normal(random);
    for (int i = 0; i < law.sizes; ++i) {
      const double size = 1e5 * std::pow(100.0, static_cast<double>(i) / (law.sizes - 1));
      const double loss = law.irreducible + 2 * std::pow(size / 1e5, -law.exponent);
      points.push_back({size, seed, loss + shared + law.noise * normal(random)});
    }
  }
  return points;
}

TEST(ScalingFitTest, FindsAnExactLaw) {
  std::mt19937_64 random(1);
  for (const double exponent : {0.05, 0.3, 1.1}) {
    for (const double irreducible : {0.0, 1.7}) {
      const ScalingFit fit =
          fit_scaling(points_of({.irreducible = irreducible, .exponent = exponent, .noise = 0, .seeds = 1}, random));
      EXPECT_NEAR(fit.exponent, exponent, 2e-3 * exponent);
      EXPECT_NEAR(fit.irreducible, irreducible, 1e-2);
      EXPECT_NEAR(fit.loss_at(1e6), irreducible + 2 * std::pow(10.0, -exponent), 1e-4);
      EXPECT_FALSE(fit.exponent_low);  // one seed
      EXPECT_TRUE(fit.determined);
    }
  }
}

// 95 % of 150 trials are 142.5 ± 2.7; the lower limit is about three standard deviations away.
TEST(ScalingFitTest, TheIntervalCoversThePlantedExponent) {
  std::mt19937_64 random(2);
  for (const Planted& law : {Planted{.exponent = 0.3, .sizes = 3, .seeds = 3}, Planted{.exponent = 0.5, .seeds = 5},
                             Planted{.exponent = 0.15, .noise = 0.003, .sizes = 5, .seeds = 5}}) {
    constexpr int kTrials = 150;
    int covered = 0;
    double width = 0;
    for (int trial = 0; trial < kTrials; ++trial) {
      const ScalingFit fit = fit_scaling(points_of(law, random), 40);
      covered += *fit.exponent_low <= law.exponent && law.exponent <= *fit.exponent_high ? 1 : 0;
      width += std::log(*fit.exponent_high / *fit.exponent_low) / kTrials;
    }
    EXPECT_GE(covered, 0.90 * kTrials) << law.exponent;
    EXPECT_LE(covered, 0.995 * kTrials) << law.exponent;
    EXPECT_LT(width, 1) << "an interval that covers everything says nothing";
  }
}

TEST(ScalingFitTest, OneFailedRunMovesItLittle) {
  std::mt19937_64 random(3);
  std::vector<ScalingPoint> points = points_of({.noise = 0.002, .seeds = 5}, random);
  const double before = fit_scaling(points, 20).exponent;
  points[1].loss += 0.5;  // 250 standard deviations
  EXPECT_NEAR(fit_scaling(points, 20).exponent, before, 0.02);
}

TEST(ScalingFitTest, RefusesFewerThanThreeSizes) {
  std::mt19937_64 random(4);
  std::vector<ScalingPoint> points = points_of({.sizes = 3, .seeds = 2}, random);
  EXPECT_EQ(error_of([&] { fit_scaling(points, 10); }), "");
  for (ScalingPoint& point : points)
    point.size = point.size > 2e5 ? 1e6 * (1 + 0.01 * static_cast<double>(point.seed)) : 1e5;
  EXPECT_NE(error_of([&] { fit_scaling(points, 10); }).find("at least 3 sizes"), std::string::npos);
}

TEST(ScalingFitTest, SaysWhenTheSizesDetermineNothing) {
  std::vector<ScalingPoint> points;
  std::mt19937_64 random(5);
  std::normal_distribution<double> normal(0, 1);
  for (int seed = 0; seed < 4; ++seed) {
    for (const double size : {1e6, 1.2e6, 1.4e6}) points.push_back({size, seed, 2 + 0.05 * normal(random)});
  }
  EXPECT_FALSE(fit_scaling(points, 200).determined);
}

const char* kSizes =
    R"({"base": {"base": "llama-tiny", "set": {"d_model": 16}}, "base_name": "s", "seeds": 2, "variants": [
  {"name": "m", "set": ["d_model=32"]}, {"name": "l", "set": ["d_model=64"]}], "scaling": )";

TEST(ScalingStudyTest, AGroupNeedsThreeSizes) {
  const auto problem = [](const std::string& scaling) {
    return error_of([&] { read_study(kSizes + scaling + "}", "test"); });
  };
  EXPECT_EQ(problem("{}"), "");
  EXPECT_EQ(problem(R"({"against": "compute", "groups": [{"name": "g", "variants": ["s", "m", "l"]}]})"), "");
  EXPECT_NE(problem(R"({"groups": [{"name": "g", "variants": ["s", "m"]}]})").find("2 sizes; a fit needs at least 3"),
            std::string::npos);
  EXPECT_NE(problem(R"({"groups": [{"name": "g", "variants": ["s", "m", "xl"]}]})").find("\"xl\" is not a variant"),
            std::string::npos);
  const Study study = read_study(std::string(kSizes) + "{}}", "test");
  EXPECT_EQ(read_study(write_study(study), "test"), study);
}

TEST(ScalingStudyTest, ResultsReportAndTerminalShowTheLaw) {
  Results results;
  results.study = read_study(std::string(kSizes) + "{}}", "sizes");
  std::mt19937_64 random(6);
  const std::vector<ScalingPoint> points = points_of({.noise = 0.002, .sizes = 3, .seeds = 2}, random);
  for (size_t i = 0; i < 3; ++i) {
    VariantResult variant;
    variant.variant.name = variant.variant.label = std::vector<std::string>{"s", "m", "l"}[i];
    variant.architecture = arch::resolve(results.study.base, "base");
    variant.parameters = static_cast<int64_t>(points[i].size);
    for (size_t seed = 0; seed < 2; ++seed) {
      RunResult run;
      run.seed = static_cast<int64_t>(seed);
      run.best_loss = run.final_loss = points[3 * seed + i].loss;
      variant.runs.push_back(run);
    }
    results.variants.push_back(variant);
  }
  summarise(results);
  ASSERT_EQ(results.scaling.size(), 1U);
  ASSERT_TRUE(results.scaling[0].fit);
  EXPECT_NEAR(results.scaling[0].fit->exponent, 0.3, 0.05);
  const std::string text = results_json(results);
  const std::string terminal = report_text(text, "x");
  EXPECT_NE(terminal.find("in parameters N; exponent 0."), std::string::npos) << terminal;
  EXPECT_NE(report_markdown(text, "x").find("![Scaling](scaling.svg)"), std::string::npos);
  EXPECT_NE(report_html(text, "x").find("<section id=\"scaling\""), std::string::npos);
  results.variants.pop_back();  // two sizes remain: too few for a fit
  summarise(results);
  EXPECT_FALSE(results.scaling[0].fit);
  EXPECT_NE(report_text(results_json(results), "x").find("fewer than three sizes"), std::string::npos);
}

}  // namespace
}  // namespace lamina::lab
