#pragma once

#include <cstdint>
#include <span>

namespace lamina::lab {

/// The stability of a run, from the losses and gradient norms of its logged updates. Each value is compared with the
/// kStabilityWindow values before it. Their median m and deviation s = 1.4826 · median |x − m| (an estimate of the
/// standard deviation) are robust to outliers.
///   loss spike        loss > m + 6 s and loss > 1.02 m; adjacent spikes count once
///   gradient outlier  norm > m + 6 s and norm > 3 m
/// The first kStabilityWarm values are not judged.
struct Stability {
  int64_t spikes = 0;
  int64_t gradient_outliers = 0;
};
inline constexpr size_t kStabilityWindow = 50;
inline constexpr size_t kStabilityWarm = 20;

Stability stability_of(std::span<const double> losses, std::span<const double> gradient_norms);

}  // namespace lamina::lab
