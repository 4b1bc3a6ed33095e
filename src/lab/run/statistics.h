#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace lamina::lab {

/// Regularised incomplete beta function I_x(a, b) for a, b > 0 and 0 ≤ x ≤ 1. Uses a continued fraction (modified Lentz
/// method); accurate to about 1e-14.
double incomplete_beta(double a, double b, double x);

/// P(|T| ≥ |t|) for Student's t distribution with this many degrees of freedom.
double student_two_sided(double t, double degrees);
/// Critical value: the t with P(|T| ≥ t) = `p`.
double student_critical(double p, double degrees);

double mean_of(std::span<const double> values);
/// Sample standard deviation (n − 1). Empty for fewer than two values.
std::optional<double> deviation_of(std::span<const double> values);
double median_of(std::vector<double> values);

/// Result of a paired test.
struct PairedTest {
  size_t pairs = 0;
  double difference = 0;                  ///< mean difference
  std::optional<double> p;                ///< two-sided; empty for fewer than two pairs
  std::optional<double> ci95_half_width;  ///< half-width of the 95 % confidence interval of the difference
};
/// Student's paired t-test. If all differences are equal, there is no variance: then p is 1 if they are 0; otherwise p
/// is 0 for three pairs or more, and empty for fewer.
PairedTest paired_test(std::span<const double> differences);

/// Equivalence test by two one-sided t-tests (TOST, Schuirmann 1987): the p value of "the mean difference is outside
/// ±margin". Below 0.05, the difference is smaller than the margin. Empty for fewer than two pairs.
std::optional<double> equivalence_p(std::span<const double> differences, double margin);

inline constexpr double kLevel = 0.05;  ///< significance level of all tests

/// Power of the two-sided paired t-test: the probability of finding a true mean difference of `effect` standard
/// deviations of the differences. Integrates the noncentral t distribution numerically, accurate to about 1e-6. With
/// Holm's correction over m comparisons, the power is at least that at level 0.05 / m.
double paired_power(double effect, size_t pairs, double level = kLevel);
/// The smallest number of pairs with this power. Empty if more than 10,000 are needed.
std::optional<size_t> pairs_needed(double effect, double power = 0.8, double level = kLevel);
/// The smallest effect that this number of pairs finds with this power. Empty for fewer than two pairs.
std::optional<double> detectable_effect(size_t pairs, double power = 0.8, double level = kLevel);

/// Holm's step-down correction of p values. Keeps their order.
std::vector<double> holm(std::span<const double> p);

}  // namespace lamina::lab
