#include "lamina/lab/run/stability.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "lamina/lab/run/statistics.h"

namespace lamina::lab {
namespace {

constexpr double kDeviations = 6;
constexpr double kLossFactor = 1.02;
constexpr double kNormFactor = 3;

/// For each value: whether it is an outlier relative to the values before it.
std::vector<bool> outstanding(std::span<const double> values, double factor) {
  std::vector<bool> result(values.size(), false);
  for (size_t i = kStabilityWarm; i < values.size(); ++i) {
    const size_t begin = i > kStabilityWindow ? i - kStabilityWindow : 0;
    std::vector<double> before(values.begin() + static_cast<std::ptrdiff_t>(begin),
                               values.begin() + static_cast<std::ptrdiff_t>(i));
    const double median = median_of(before);
    for (double& value : before) value = std::abs(value - median);
    const double deviation = 1.4826 * median_of(std::move(before));
    result[i] = values[i] > median + kDeviations * deviation && values[i] > factor * median;
  }
  return result;
}

}  // namespace

Stability stability_of(std::span<const double> losses, std::span<const double> gradient_norms) {
  Stability stability;
  const std::vector<bool> high = outstanding(losses, kLossFactor);
  for (size_t i = 0; i < high.size(); ++i) stability.spikes += high[i] && (i == 0 || !high[i - 1]) ? 1 : 0;
  const std::vector<bool> large = outstanding(gradient_norms, kNormFactor);
  stability.gradient_outliers = std::count(large.begin(), large.end(), true);
  return stability;
}

}  // namespace lamina::lab
