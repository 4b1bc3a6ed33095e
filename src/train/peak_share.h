#pragma once

#include <functional>
#include <optional>

namespace lamina::train {

/// Converts rates to shares of a device's peak, which the constructor measures. If the machine was busy then, the peak
/// is too low and later rates exceed it. The peak is then measured again, up to a limit.
class PeakShare {
 public:
  /// `measure` returns operations per second. It is called at least once and at most `most` times.
  explicit PeakShare(std::function<double()> measure, int most = 4);

  /// Share in (0, 1]; empty if `rate` exceeds every measurement or is not positive.
  std::optional<double> of(double rate);
  /// Highest measurement so far.
  double peak() const { return peak_; }

 private:
  std::function<double()> measure_;
  int left_;  ///< remaining measurements
  double peak_;
};

}  // namespace lamina::train
