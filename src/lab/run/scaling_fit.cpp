#include "lamina/lab/run/scaling_fit.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "lamina/base/error.h"
#include "lamina/lab/run/statistics.h"

namespace lamina::lab {
namespace {

constexpr int kCurveSteps = 60;
constexpr double kHuber = 1.345;       // 95 % efficiency for normally distributed noise
constexpr double kWidestInterval = 3;  // an interval from α/3 to 3α is uninformative

struct Law {
  double irreducible = 0;
  double coefficient = 0;  // coefficient of (size / middle)^−α
  double exponent = 0;
  double badness = 0;  // sum of the Huber losses
};

/// The points in the form that the search needs. Sizes are divided by their geometric mean, so that E and A have
/// similar magnitudes.
struct Sample {
  std::vector<double> log_size;  // ln(size / middle)
  std::vector<double> loss;
  std::vector<double> weight;  // number of times that a bootstrap sample contains the point
  double noise = 0;            // scale of the Huber loss; 0: least squares
};

/// Finds the best E ≥ 0 and A ≥ 0 for given weights. `u` is size^−α.
void solve(const std::vector<double>& u, const std::vector<double>& y, const std::vector<double>& w, Law& law) {
  double sw = 0, su = 0, sy = 0, suu = 0, suy = 0;
  for (size_t i = 0; i < u.size(); ++i) {
    sw += w[i];
    su += w[i] * u[i];
    sy += w[i] * y[i];
    suu += w[i] * u[i] * u[i];
    suy += w[i] * u[i] * y[i];
  }
  const double det = sw * suu - su * su;
  law.coefficient = det > 0 ? (sw * suy - su * sy) / det : 0;
  law.irreducible = (sy - law.coefficient * su) / sw;
  if (law.coefficient < 0) law = {sy / sw, 0, law.exponent, 0};
  if (law.irreducible < 0) law = {0, suy / suu, law.exponent, 0};
}

/// The best law with this exponent, by iteratively reweighted least squares.
Law law_with(const Sample& sample, double exponent) {
  std::vector<double> u(sample.log_size.size());
  for (size_t i = 0; i < u.size(); ++i) u[i] = std::exp(-exponent * sample.log_size[i]);
  std::vector<double> w = sample.weight;
  Law law;
  law.exponent = exponent;
  const double bound = kHuber * sample.noise;
  const int rounds = sample.noise > 0 ? 12 : 1;
  double before = -1;
  for (int round = 0; round < rounds; ++round) {
    solve(u, sample.loss, w, law);
    law.badness = 0;
    for (size_t i = 0; i < u.size(); ++i) {
      const double r = std::abs(sample.loss[i] - law.irreducible - law.coefficient * u[i]);
      const bool far = sample.noise > 0 && r > bound;
      w[i] = sample.weight[i] * (far ? bound / r : 1);
      law.badness += sample.weight[i] * (far ? bound * (r - bound / 2) : r * r / 2);
    }
    if (std::abs(law.badness - before) <= 1e-9 * law.badness) break;
    before = law.badness;
  }
  return law;
}

/// Searches α on a logarithmic grid, then by golden-section search between the neighbours of the best value.
Law best_law(const Sample& sample, int grid) {
  const double low = std::log(kLowestExponent);
  const double step = (std::log(kHighestExponent) - low) / grid;
  int best = 0;
  double least = 0;
  for (int i = 0; i <= grid; ++i) {
    const double badness = law_with(sample, std::exp(low + i * step)).badness;
    if (i == 0 || badness < least) {
      least = badness;
      best = i;
    }
  }
  constexpr double kGolden = 0.6180339887498949;
  double a = low + std::max(best - 1, 0) * step;
  double b = low + std::min(best + 1, grid) * step;
  double c = b - kGolden * (b - a);
  double d = a + kGolden * (b - a);
  Law at_c = law_with(sample, std::exp(c));
  Law at_d = law_with(sample, std::exp(d));
  while (b - a > 1e-5) {
    if (at_c.badness <= at_d.badness) {
      b = d;
      d = c;
      at_d = at_c;
      c = b - kGolden * (b - a);
      at_c = law_with(sample, std::exp(c));
    } else {
      a = c;
      c = d;
      at_c = at_d;
      d = a + kGolden * (b - a);
      at_d = law_with(sample, std::exp(d));
    }
  }
  return at_c.badness <= at_d.badness ? at_c : at_d;
}

/// Robust scale of the differences between seeds of the same size: 1.4826 · median of |loss − median of its size|,
/// corrected for the degree of freedom that each median uses.
double noise_of(std::span<const ScalingPoint> points) {
  std::vector<double> deviations;
  size_t sizes = 0;
  std::set<double> seen;
  for (const ScalingPoint& point : points) {
    if (!seen.insert(point.size).second) continue;
    std::vector<double> losses;
    for (const ScalingPoint& other : points) {
      if (other.size == point.size) losses.push_back(other.loss);
    }
    if (losses.size() < 2) continue;
    ++sizes;
    const double median = median_of(losses);
    for (const double loss : losses) deviations.push_back(std::abs(loss - median));
  }
  if (deviations.size() <= sizes) return 0;
  const auto n = static_cast<double>(deviations.size());
  const double lost = std::sqrt(n / (n - static_cast<double>(sizes)));
  return 1.4826 * median_of(std::move(deviations)) * lost;
}

bool at_a_limit(double exponent) { return exponent < 1.02 * kLowestExponent || exponent > 0.98 * kHighestExponent; }

/// Draws seeds with replacement, as many as there are, and sets the points' weights. Returns false if a size has no
/// point.
bool draw_seeds(Sample& sample, std::span<const ScalingPoint> points, const std::vector<int64_t>& seeds,
                std::mt19937_64& random) {
  std::vector<double> times(seeds.size(), 0);
  for (size_t i = 0; i < seeds.size(); ++i) times[random() % seeds.size()] += 1;
  std::set<double> sizes;
  std::set<double> present;
  for (size_t i = 0; i < points.size(); ++i) {
    const auto seed = std::lower_bound(seeds.begin(), seeds.end(), points[i].seed);
    sample.weight[i] = times[static_cast<size_t>(seed - seeds.begin())];
    sizes.insert(points[i].size);
    if (sample.weight[i] > 0) present.insert(points[i].size);
  }
  return sizes.size() == present.size();
}

double value_at(const Law& law, double log_size) {
  return law.irreducible + law.coefficient * std::exp(-law.exponent * log_size);
}

/// Adds the confidence intervals of the exponent and of the curve.
void add_intervals(ScalingFit& fit, Sample sample, std::span<const ScalingPoint> points, const Law& law, double middle,
                   size_t bootstraps) {
  const std::set<int64_t> distinct = [&] {
    std::set<int64_t> all;
    for (const ScalingPoint& point : points) all.insert(point.seed);
    return all;
  }();
  const std::vector<int64_t> seeds(distinct.begin(), distinct.end());
  if (seeds.size() < 2) return;
  std::mt19937_64 random(1);  // fixed seed, so that the same results file always gives the same interval
  std::vector<double> exponents;
  std::vector<std::vector<double>> curves(fit.curve_size.size());
  size_t limits = 0;
  for (size_t i = 0; i < bootstraps; ++i) {
    if (!draw_seeds(sample, points, seeds, random)) continue;
    const Law drawn = best_law(sample, 16);
    limits += at_a_limit(drawn.exponent) ? 1 : 0;
    exponents.push_back(std::log(drawn.exponent));
    for (size_t j = 0; j < curves.size(); ++j)
      curves[j].push_back(value_at(drawn, std::log(fit.curve_size[j] / middle)));
  }
  if (exponents.size() < 2) return;
  const auto n = static_cast<double>(seeds.size());
  const double factor = student_critical(0.05, n - 1) * std::sqrt(n / (n - 1));
  const double half = std::min(factor * *deviation_of(exponents), 700.0);
  fit.exponent_low = law.exponent * std::exp(-half);
  fit.exponent_high = law.exponent * std::exp(half);
  fit.determined = fit.determined && half < std::log(kWidestInterval) &&
                   static_cast<double>(limits) <= 0.05 * static_cast<double>(exponents.size());
  for (size_t j = 0; j < curves.size(); ++j) {
    const double band = factor * *deviation_of(curves[j]);
    fit.curve_low.push_back(fit.curve_loss[j] - band);
    fit.curve_high.push_back(fit.curve_loss[j] + band);
  }
}

}  // namespace

double ScalingFit::loss_at(double size) const { return irreducible + coefficient * std::pow(size, -exponent); }

size_t distinct_sizes(std::vector<double> sizes) {
  std::sort(sizes.begin(), sizes.end());
  size_t count = 0;
  double last = 0;
  for (const double size : sizes) {
    if (count > 0 && size <= kSameSize * last) continue;
    ++count;
    last = size;
  }
  return count;
}

ScalingFit fit_scaling(std::span<const ScalingPoint> points, size_t bootstraps) {
  std::vector<double> sizes;
  std::set<int64_t> seeds;
  double middle = 0;
  for (const ScalingPoint& point : points) {
    LAMINA_CHECK(point.size > 0 && std::isfinite(point.loss), "fit_scaling: size ", point.size, ", loss ", point.loss,
                 "; expected a positive size and a finite loss");
    sizes.push_back(point.size);
    seeds.insert(point.seed);
    middle += std::log(point.size) / static_cast<double>(points.size());
  }
  ScalingFit fit;
  fit.sizes = distinct_sizes(sizes);
  fit.seeds = seeds.size();
  LAMINA_CHECK(fit.sizes >= kFewestSizes, "a scaling fit needs at least ", kFewestSizes,
               " sizes that differ by more than ", std::lround(100 * (kSameSize - 1)), " %; given ", fit.sizes,
               "; add models of other sizes");
  Sample sample;
  for (const ScalingPoint& point : points) {
    sample.log_size.push_back(std::log(point.size) - middle);
    sample.loss.push_back(point.loss);
    sample.weight.push_back(1);
  }
  sample.noise = noise_of(points);
  const Law law = best_law(sample, 96);
  fit.irreducible = law.irreducible;
  fit.exponent = law.exponent;
  fit.coefficient = law.coefficient * std::exp(law.exponent * middle);
  fit.determined = !at_a_limit(law.exponent) && law.coefficient > 0;
  const auto [smallest, largest] = std::minmax_element(sizes.begin(), sizes.end());
  for (int i = 0; i <= kCurveSteps; ++i) {
    fit.curve_size.push_back(*smallest * std::pow(*largest / *smallest, static_cast<double>(i) / kCurveSteps));
    fit.curve_loss.push_back(fit.loss_at(fit.curve_size.back()));
  }
  add_intervals(fit, std::move(sample), points, law, std::exp(middle), bootstraps);
  return fit;
}

}  // namespace lamina::lab
