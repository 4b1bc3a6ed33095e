#pragma once

#include <functional>
#include <optional>

namespace lamina::train {

/// Rates as shares of a device's peak, which is measured at once. A machine that was busy during the measurement gives
/// too low a peak, and later rates exceed it: then the peak is measured again, up to a limit.
class PeakShare {
 public:
  /// `measure` returns operations per second and is called at most `most` times in all, at least once.
  explicit PeakShare(std::function<double()> measure, int most = 4);

  /// In (0, 1]; nothing if no measurement reaches `rate`.
  std::optional<double> of(double rate);
  /// The best measurement so far.
  double peak() const { return peak_; }

 private:
  std::function<double()> measure_;
  int left_;  ///< measurements
  double peak_;
};

}  // namespace lamina::train
