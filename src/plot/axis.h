#pragma once

#include <string>
#include <vector>

namespace lamina::plot {

/// One axis of a chart: its range and its ticks.
struct Axis {
  double low = 0;
  double high = 1;
  double tick_step = 1;  ///< 0: each tick is rounded by its own magnitude
  std::vector<double> ticks;
  bool logarithmic = false;

  /// Position of the value on the axis: 0 at `low`, 1 at `high`.
  double share(double value) const;
  /// Writes a tick with as many decimals as the ticks need; thousands and above use k, M, G, T.
  std::string label(double tick) const;
};
/// Places about `ticks` ticks at multiples of 1, 2 or 5 times a power of ten, within [low, high].
Axis linear_axis(double low, double high, int ticks);
/// Logarithmic axis, 0 < low. Ticks are at 1, 2 and 5 times powers of ten, or at the powers only if these are too many.
Axis log_axis(double low, double high, int ticks);

/// Minimum and maximum of the added values.
struct Range {
  double low = 1e300;
  double high = -1e300;
  void add(double value) {
    low = value < low ? value : low;
    high = value > high ? value : high;
  }
  bool empty() const { return low > high; }
  /// Linear axis with a margin of 5 % on either side.
  Axis axis(int ticks) const;
};

}  // namespace lamina::plot
