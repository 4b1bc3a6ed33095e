#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace lamina::lab {

/// The regularised incomplete beta function I_x(a, b) for a, b > 0 and 0 ≤ x ≤ 1, by its continued fraction (modified
/// Lentz), to about 1e-14.
double incomplete_beta(double a, double b, double x);

/// P(|T| ≥ |t|) of Student's distribution with so many degrees of freedom.
double student_two_sided(double t, double degrees);
/// The t beyond which, on both sides together, lies `p`.
double student_critical(double p, double degrees);

double mean_of(std::span<const double> values);
/// Of a sample: divided by n − 1; nothing for fewer than two.
std::optional<double> deviation_of(std::span<const double> values);
double median_of(std::vector<double> values);

/// Pairs as their differences.
struct PairedTest {
  size_t pairs = 0;
  double difference = 0;        ///< mean
  std::optional<double> p;      ///< two-sided; nothing for fewer than two pairs
  std::optional<double> reach;  ///< half of the 95 % interval around the difference
};
/// Student's paired test. Where all differences are equal there is no spread to judge by: p is 1 for 0, and for
/// anything else 0 from three pairs on and nothing before.
PairedTest paired_test(std::span<const double> differences);

/// Holm's step-down correction for as many comparisons as there are values, in their order.
std::vector<double> holm(std::span<const double> p);

}  // namespace lamina::lab
