// Statistics against closed forms and published tables.
#include "lamina/lab/run/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "lamina/lab/run/stability.h"

namespace lamina::lab {
namespace {

TEST(IncompleteBetaTest, HasItsClosedForms) {
  for (const double x : {0.0, 1e-6, 0.1, 0.35, 0.5, 0.77, 0.999, 1.0}) {
    EXPECT_NEAR(incomplete_beta(1, 3.5, x), 1 - std::pow(1 - x, 3.5), 1e-13) << x;
    EXPECT_NEAR(incomplete_beta(4.25, 1, x), std::pow(x, 4.25), 1e-13) << x;
    EXPECT_NEAR(incomplete_beta(2, 3, x), x * x * (6 - 8 * x + 3 * x * x), 1e-13) << x;
    EXPECT_NEAR(incomplete_beta(0.5, 0.5, x), 2 / std::numbers::pi * std::asin(std::sqrt(x)), 1e-13) << x;
    EXPECT_NEAR(incomplete_beta(7, 0.3, x) + incomplete_beta(0.3, 7, 1 - x), 1, 1e-13) << x;
  }
  EXPECT_NEAR(incomplete_beta(400, 400, 0.5), 0.5, 1e-11);
}

TEST(StudentTest, HasItsClosedFormsAndTheTablesValues) {
  for (const double t : {0.0, 0.3, 1.0, 4.5, 60.0}) {
    EXPECT_NEAR(student_two_sided(t, 1), 1 - 2 / std::numbers::pi * std::atan(t), 1e-13) << t;
    EXPECT_NEAR(student_two_sided(-t, 2), 1 - t / std::sqrt(t * t + 2), 1e-13) << t;
  }
  // Two-sided 5 % and 1 % points, as printed in tables.
  EXPECT_NEAR(student_critical(0.05, 1), 12.706, 5e-4);
  EXPECT_NEAR(student_critical(0.05, 4), 2.776, 5e-4);
  EXPECT_NEAR(student_critical(0.05, 30), 2.042, 5e-4);
  EXPECT_NEAR(student_critical(0.01, 9), 3.250, 5e-4);
}

TEST(PairedTest, GivesWhatStudentFoundAboutSleep) {
  // Hours of sleep gained with one drug over another, ten patients (Student 1908): t = 4.0621, p = 0.002833.
  const std::vector<double> gained = {1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4};
  const lab::PairedTest test = paired_test(gained);
  EXPECT_NEAR(test.difference, 1.58, 1e-12);
  EXPECT_NEAR(*test.p, 0.002833, 5e-7);
  // The interval printed with it: 0.7001 to 2.4599.
  EXPECT_NEAR(test.difference - *test.ci95_half_width, 0.7001, 5e-5);
  EXPECT_NEAR(test.difference + *test.ci95_half_width, 2.4599, 5e-5);
}

TEST(PairedTest, KnowsWhenItCannotKnow) {
  EXPECT_FALSE(paired_test({}).p);
  EXPECT_FALSE(paired_test(std::vector<double>{0.5}).p);
  EXPECT_EQ(*paired_test(std::vector<double>{0, 0}).p, 1.0);
  EXPECT_FALSE(paired_test(std::vector<double>{0.5, 0.5}).p);
  EXPECT_EQ(*paired_test(std::vector<double>{0.5, 0.5, 0.5}).p, 0.0);
}

TEST(EquivalenceTest, IsTheLargerOfTwoOneSidedTests) {
  // Three pairs have two degrees of freedom, for which P(T ≥ t) = (1 − t/√(t² + 2)) / 2.
  const std::vector<double> differences = {0.01, -0.02, 0.04};
  const double error = *deviation_of(differences) / std::sqrt(3.0);
  const double mean = 0.01;
  const auto upper = [](double t) { return (1 - t / std::sqrt(t * t + 2)) / 2; };
  for (const double margin : {0.005, 0.05, 0.5}) {
    const double expected = std::max(upper((mean + margin) / error), upper((margin - mean) / error));
    EXPECT_NEAR(*equivalence_p(differences, margin), expected, 1e-12) << margin;
  }
  EXPECT_GT(*equivalence_p(differences, 0.005), 0.5);  // the mean itself lies outside
  EXPECT_LT(*equivalence_p(differences, 0.5), 0.01);
  EXPECT_NEAR(*equivalence_p(std::vector<double>{0.002, -0.001, 0.004, -0.002, 0.001}, 0.011), 3.353153e-4, 1e-9);
  EXPECT_FALSE(equivalence_p(std::vector<double>{0.1}, 1.0));
  EXPECT_EQ(*equivalence_p(std::vector<double>{0, 0}, 0.1), 0.0);
  EXPECT_EQ(*equivalence_p(std::vector<double>{0.5, 0.5}, 0.1), 1.0);
}

TEST(PowerTest, AgreesWithPublishedTables) {
  // Cohen's dz and sample sizes of the two-sided paired t-test at 0.05, as G*Power and R's pwr.t.test give them.
  EXPECT_NEAR(paired_power(0.5, 34), 0.8078, 5e-5);
  EXPECT_NEAR(paired_power(0.8, 15), 0.8213, 5e-5);
  EXPECT_EQ(*pairs_needed(0.5), 34u);
  EXPECT_EQ(*pairs_needed(0.2), 199u);
  EXPECT_EQ(*pairs_needed(0.8), 15u);
  EXPECT_EQ(*pairs_needed(0.5, 0.9), 44u);
  // At other levels, from the series of the noncentral t distribution (AS 243).
  EXPECT_NEAR(paired_power(0.5, 50, 0.01), 0.799337, 1e-5);
  EXPECT_NEAR(paired_power(2, 5, 0.0125), 0.606280, 1e-5);
  EXPECT_EQ(*pairs_needed(0.5, 0.8, 0.01), 51u);
  EXPECT_EQ(*pairs_needed(0.005 / 0.006, 0.8, 0.05 / 4), 20u);
}

TEST(PowerTest, IsTheLevelWithoutAnEffectAndGrowsWithPairs) {
  for (const size_t pairs : {2u, 3u, 5u, 30u, 1000u}) EXPECT_NEAR(paired_power(0, pairs), 0.05, 1e-5) << pairs;
  double last = 0;
  for (size_t pairs = 2; pairs < 12; ++pairs) {
    EXPECT_GT(paired_power(1, pairs), last);
    last = paired_power(1, pairs);
    EXPECT_NEAR(paired_power(*detectable_effect(pairs), pairs), 0.8, 1e-6) << pairs;
    EXPECT_NEAR(paired_power(*detectable_effect(pairs, 0.9, 0.01), pairs, 0.01), 0.9, 1e-6) << pairs;
  }
  EXPECT_FALSE(pairs_needed(0));
  EXPECT_FALSE(pairs_needed(1e-4));
  EXPECT_FALSE(detectable_effect(1));
}

TEST(PowerTest, AgreesWithASimulation) {
  // Box–Muller draws from a fixed linear congruential generator; the standard error of the share is 0.003.
  uint64_t state = 1;
  const auto uniform = [&] {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (static_cast<double>(state >> 11U) + 0.5) / 9007199254740992.0;
  };
  int found = 0;
  constexpr int kTrials = 20000;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<double> differences(5);
    for (double& d : differences) {
      d = 1.2 + std::sqrt(-2 * std::log(uniform())) * std::cos(2 * std::numbers::pi * uniform());
    }
    found += *paired_test(differences).p < 0.05 ? 1 : 0;
  }
  EXPECT_NEAR(static_cast<double>(found) / kTrials, paired_power(1.2, 5), 0.012);
}

TEST(HolmTest, StepsDown) {
  const std::vector<double> corrected = holm(std::vector<double>{0.01, 0.04, 0.03, 0.005});
  const std::vector<double> expected = {0.03, 0.06, 0.06, 0.02};
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(corrected[i], expected[i], 1e-15) << i;
  EXPECT_EQ(holm(std::vector<double>{0.7, 0.9})[1], 1.0);
  EXPECT_TRUE(holm({}).empty());
}

/// A falling curve with noise that no generator need be seeded for.
std::vector<double> falling(size_t count) {
  std::vector<double> values;
  for (size_t i = 0; i < count; ++i) {
    const auto t = static_cast<double>(i);
    values.push_back(1.5 + 3 * std::exp(-t / 40) + 0.05 * std::sin(t * 12.9898) * std::cos(t * 78.233));
  }
  return values;
}

TEST(StabilityTest, FindsPlantedSpikesAndNothingElse) {
  std::vector<double> losses = falling(400);
  std::vector<double> norms(400);
  for (size_t i = 0; i < norms.size(); ++i) norms[i] = 0.5 + 0.1 * std::sin(static_cast<double>(i));
  const Stability calm = stability_of(losses, norms);
  EXPECT_EQ(calm.spikes, 0);
  EXPECT_EQ(calm.gradient_outliers, 0);
  losses[300] += 0.6;
  for (size_t i = 350; i < 355; ++i) losses[i] += 0.8;  // one spike, five updates long
  norms[150] = 7;
  norms[151] = 5;
  const Stability shaken = stability_of(losses, norms);
  EXPECT_EQ(shaken.spikes, 2);
  EXPECT_EQ(shaken.gradient_outliers, 2);
}

}  // namespace
}  // namespace lamina::lab
