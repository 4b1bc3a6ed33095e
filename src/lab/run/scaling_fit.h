#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace lamina::lab {

/// Loss of one run of a model of this size.
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
  /// 95 % confidence interval of α; empty with one seed.
  std::optional<double> exponent_low;
  std::optional<double> exponent_high;
  /// False: α lies at a limit of its range, or does in more than 5 % of the bootstrap samples, or its interval exceeds
  /// α/3 to 3α. The sizes are too close together, or the noise is too large.
  bool determined = true;
  size_t sizes = 0;  ///< distinct sizes
  size_t seeds = 0;  ///< distinct seeds
  /// The curve over the measured sizes, with a pointwise 95 % confidence band (empty with one seed).
  std::vector<double> curve_size;
  std::vector<double> curve_loss;
  std::vector<double> curve_low;
  std::vector<double> curve_high;

  double loss_at(double size) const;
};

inline constexpr size_t kFewestSizes = 3;  ///< E, A and α are three unknowns
inline constexpr double kSameSize = 1.05;  ///< sizes within this factor count as one
inline constexpr double kLowestExponent = 0.01;
inline constexpr double kHighestExponent = 5;

/// Number of sizes that differ by more than kSameSize.
size_t distinct_sizes(std::vector<double> sizes);

/// Fits the law to all points. Residuals enter with Huber's loss, so that one failed run has a bounded influence; its
/// scale is the noise between seeds of the same size. For a given α the law is linear in E and A, so only α is
/// searched.
///
/// The interval of α is a Student interval of ln α with n − 1 degrees of freedom for n seeds. Its standard error comes
/// from a bootstrap that draws whole seeds, because runs of one seed share their batches. The factor √(n / (n − 1))
/// corrects the bootstrap's bias for few seeds.
///
/// Throws Error if there are fewer than kFewestSizes distinct sizes.
ScalingFit fit_scaling(std::span<const ScalingPoint> points, size_t bootstraps = 1000);

}  // namespace lamina::lab
