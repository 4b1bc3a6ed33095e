#pragma once

#include <string>
#include <vector>

namespace lamina::plot {

/// One axis of a chart: its range and its ticks.
struct Axis {
  double low = 0;
  double high = 1;
  double tick_step = 1;  ///< 0: each tick label is rounded by its own magnitude
  std::vector<double> ticks;
  bool logarithmic = false;

  /// Position of a value on the axis: 0 at `low`, 1 at `high`.
  double share(double value) const;
  /// Formats a tick with as many decimals as the ticks need. Large numbers use k, M, G, T.
  std::string label(double tick) const;
};
/// An axis with about `ticks` ticks at multiples of 1, 2 or 5 times a power of ten, within [low, high].
Axis linear_axis(double low, double high, int ticks);
/// A logarithmic axis; low must be positive. Ticks are at 1, 2 and 5 times powers of ten, or only at the powers if that
/// is too many.
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
  /// A linear axis with a margin of 5 % on both sides.
  Axis axis(int ticks) const;
};

}  // namespace lamina::plot
