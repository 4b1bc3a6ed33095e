#include "lamina/lab/run/statistics.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "lamina/base/error.h"

namespace lamina::lab {
namespace {

/// Evaluates the continued fraction of I_x(a, b) (Abramowitz & Stegun 26.5.8): 1/(1+ d1/(1+ d2/(1+ …
///   d_{2m}   =  m(b−m)x / ((a+2m−1)(a+2m))
///   d_{2m+1} = −(a+m)(a+b+m)x / ((a+2m)(a+2m+1))
double beta_fraction(double a, double b, double x) {
  constexpr double kTiny = 1e-300;
  constexpr int kMostTerms = 10000;
  const auto away_from_zero = [](double value) { return std::abs(value) < kTiny ? kTiny : value; };
  double c = 1.0;
  double d = 1.0 / away_from_zero(1.0 - (a + b) * x / (a + 1.0));
  double value = d;
  for (int m = 1; m <= kMostTerms; ++m) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    d = 1.0 / away_from_zero(1.0 + even * d);
    c = away_from_zero(1.0 + even / c);
    value *= c * d;
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    d = 1.0 / away_from_zero(1.0 + odd * d);
    c = away_from_zero(1.0 + odd / c);
    value *= c * d;
    if (std::abs(c * d - 1.0) < 1e-15) break;
  }
  return value;
}

/// P(T ≥ t).
double student_upper(double t, double degrees) {
  const double half = student_two_sided(t, degrees) / 2;
  return t >= 0 ? half : 1 - half;
}

double normal_below(double z) { return std::erfc(-z / std::numbers::sqrt2) / 2; }

}  // namespace

double incomplete_beta(double a, double b, double x) {
  LAMINA_CHECK(a > 0 && b > 0 && x >= 0 && x <= 1, "incomplete_beta: a ", a, ", b ", b, ", x ", x,
               "; expected a, b > 0 and x in [0, 1]");
  if (x == 0 || x == 1) return x;
  const double front =
      std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) + a * std::log(x) + b * std::log1p(-x));
  // The fraction converges fast for x below this bound. Above it, use I_x(a, b) = 1 − I_{1−x}(b, a).
  if (x < (a + 1) / (a + b + 2)) return front * beta_fraction(a, b, x) / a;
  return 1.0 - front * beta_fraction(b, a, 1.0 - x) / b;
}

double student_two_sided(double t, double degrees) {
  if (std::isinf(t)) return 0.0;
  return incomplete_beta(degrees / 2, 0.5, degrees / (degrees + t * t));
}

double student_critical(double p, double degrees) {
  LAMINA_CHECK(p > 0 && p < 1 && degrees >= 1, "student_critical: p ", p, " with ", degrees, " degrees of freedom");
  double low = 0;
  double high = 1;
  while (student_two_sided(high, degrees) > p) high *= 2;
  for (int i = 0; i < 200 && high - low > 1e-13 * high; ++i) {
    const double middle = (low + high) / 2;
    (student_two_sided(middle, degrees) > p ? low : high) = middle;
  }
  return (low + high) / 2;
}

double mean_of(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

std::optional<double> deviation_of(std::span<const double> values) {
  if (values.size() < 2) return {};
  const double mean = mean_of(values);
  double sum = 0;
  for (const double value : values) sum += (value - mean) * (value - mean);
  return std::sqrt(sum / static_cast<double>(values.size() - 1));
}

double median_of(std::vector<double> values) {
  const size_t half = values.size() / 2;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(half), values.end());
  const double upper = values[half];
  if (values.size() % 2 == 1) return upper;
  return (upper + *std::max_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(half))) / 2;
}

PairedTest paired_test(std::span<const double> differences) {
  PairedTest test;
  test.pairs = differences.size();
  if (differences.empty()) return test;
  test.difference = mean_of(differences);
  if (differences.size() < 2) return test;
  const auto n = static_cast<double>(differences.size());
  const bool equal = std::all_of(differences.begin(), differences.end(), [&](double d) { return d == differences[0]; });
  if (equal) {
    if (differences[0] == 0) test.p = 1.0;
    if (differences[0] != 0 && differences.size() > 2) test.p = 0.0;
    test.ci95_half_width = 0.0;
    return test;
  }
  const double error = *deviation_of(differences) / std::sqrt(n);
  test.p = student_two_sided(test.difference / error, n - 1);
  test.ci95_half_width = student_critical(kLevel, n - 1) * error;
  return test;
}

std::optional<double> equivalence_p(std::span<const double> differences, double margin) {
  if (differences.size() < 2) return {};
  const double mean = mean_of(differences);
  const double error = *deviation_of(differences) / std::sqrt(static_cast<double>(differences.size()));
  if (error == 0) return std::abs(mean) < margin ? 0.0 : 1.0;
  const auto degrees = static_cast<double>(differences.size() - 1);
  return std::max(student_upper((mean + margin) / error, degrees), student_upper((margin - mean) / error, degrees));
}

double paired_power(double effect, size_t pairs, double level) {
  LAMINA_CHECK(pairs >= 2, "paired_power: ", pairs, " pairs; expected at least 2");
  // T = (Z + shift) / W with Z normal and W = √(χ²/ν). Given W = w, the test rejects if |Z + shift| > critical · w.
  const auto degrees = static_cast<double>(pairs - 1);
  const double shift = std::abs(effect) * std::sqrt(static_cast<double>(pairs));
  const double critical = student_critical(level, degrees);
  const double log_scale = std::log(2.0) + degrees / 2 * std::log(degrees / 2) - std::lgamma(degrees / 2);
  const auto integrand = [&](double w) {
    const double density = std::exp(log_scale + (degrees - 1) * std::log(w) - degrees * w * w / 2);
    return density * (normal_below(shift - critical * w) + normal_below(-shift - critical * w));
  };
  // Simpson's rule around the mode of W, which is near 1 with a standard deviation of about 1/√(2ν).
  constexpr int kIntervals = 4000;
  const double end = 1 + 10 / std::sqrt(2 * degrees);
  const double step = end / kIntervals;
  double sum = integrand(end);
  for (int i = 1; i < kIntervals; ++i) sum += (i % 2 == 1 ? 4 : 2) * integrand(i * step);
  // The value at 0 is a limit. It is positive only for one degree of freedom.
  if (pairs == 2) sum += integrand(step * 1e-9);
  return std::min(1.0, sum * step / 3);
}

std::optional<size_t> pairs_needed(double effect, double power, double level) {
  constexpr size_t kMostPairs = 10000;
  if (effect == 0 || paired_power(effect, kMostPairs, level) < power) return {};
  size_t low = 1;  // `low` pairs are too few, `high` pairs are enough
  size_t high = kMostPairs;
  while (high - low > 1) {
    const size_t middle = (low + high) / 2;
    (paired_power(effect, middle, level) < power ? low : high) = middle;
  }
  return high;
}

std::optional<double> detectable_effect(size_t pairs, double power, double level) {
  if (pairs < 2) return {};
  double low = 0;
  double high = 1;
  while (paired_power(high, pairs, level) < power) high *= 2;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (paired_power(middle, pairs, level) < power ? low : high) = middle;
  }
  return high;
}

std::vector<double> holm(std::span<const double> p) {
  std::vector<size_t> order(p.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return p[a] < p[b]; });
  std::vector<double> corrected(p.size());
  double largest = 0;
  for (size_t rank = 0; rank < order.size(); ++rank) {
    largest = std::max(largest, std::min(1.0, p[order[rank]] * static_cast<double>(p.size() - rank)));
    corrected[order[rank]] = largest;
  }
  return corrected;
}

}  // namespace lamina::lab
