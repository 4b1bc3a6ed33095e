#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace lamina::lab {

/// The loss of one run of a model of this size.
struct ScalingPoint {
  double size = 0;  ///< parameters, or training FLOPs
  int64_t seed = 0;
  double loss = 0;
};

/// Scaling law L(N) = E + A · N^−α (Kaplan et al. 2020, Hoffmann et al. 2022).
struct ScalingFit {
  double irreducible = 0;  ///< E ≥ 0
  double coefficient = 0;  ///< A ≥ 0
  double exponent = 0;     ///< α
  /// 95 % confidence interval of α. Empty if there is only one seed.
  std::optional<double> exponent_low;
  std::optional<double> exponent_high;
  /// False if α is at a limit of its range, or is in more than 5 % of the bootstrap samples, or if its interval exceeds
  /// α/3 to 3α. Then the sizes are too close together, or the noise is too large.
  bool determined = true;
  size_t sizes = 0;  ///< number of distinct sizes
  size_t seeds = 0;  ///< number of distinct seeds
  /// The curve over the measured sizes, with a pointwise 95 % confidence band (empty if there is only one seed).
  std::vector<double> curve_size;
  std::vector<double> curve_loss;
  std::vector<double> curve_low;
  std::vector<double> curve_high;

  double loss_at(double size) const;
};

inline constexpr size_t kFewestSizes = 3;  ///< the unknowns E, A and α need three sizes
inline constexpr double kSameSize = 1.05;  ///< sizes within this factor count as one
inline constexpr double kLowestExponent = 0.01;
inline constexpr double kHighestExponent = 5;

/// Number of sizes that differ by more than kSameSize.
size_t distinct_sizes(std::vector<double> sizes);

/// Fits the law to all points. The Huber loss of the residuals limits the influence of a single failed run; its scale
/// is the noise between seeds of the same size. For a given α the law is linear in E and A, so only α is searched.
///
/// The interval of α is a Student interval of ln α with n − 1 degrees of freedom for n seeds. Its standard error comes
/// from a bootstrap that draws whole seeds, because runs with the same seed have the same batches. The factor √(n / (n
/// − 1)) corrects the bootstrap's bias for few seeds.
///
/// Throws an Error if there are fewer than kFewestSizes distinct sizes.
ScalingFit fit_scaling(std::span<const ScalingPoint> points, size_t bootstraps = 1000);

}  // namespace lamina::lab
