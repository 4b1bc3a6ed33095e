#pragma once

#include <cstdint>
#include <span>

namespace lamina::lab {

/// What a run's losses and gradient norms, one for each logged update in order, say about its stability. Each is judged
/// by the kStabilityWindow values before it, whose median m and robust deviation s = 1.4826 · median |x − m| (the
/// standard deviation, were they normal) single values cannot move:
///   loss spike        loss > m + 6 s and loss > 1.02 m; neighbours are one spike
///   gradient outlier  norm > m + 6 s and norm > 3 m
/// The first kStabilityWarm values are judged by nothing.
struct Stability {
  int64_t spikes = 0;
  int64_t gradient_outliers = 0;
};
inline constexpr size_t kStabilityWindow = 50;
inline constexpr size_t kStabilityWarm = 20;

Stability stability_of(std::span<const double> losses, std::span<const double> gradient_norms);

}  // namespace lamina::lab
