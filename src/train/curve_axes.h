#pragma once

#include <string>
#include <vector>

#include "lamina/train/curves.h"

namespace lamina::train {

/// One axis of a chart: its range and its ticks.
struct CurveAxis {
  double low = 0;
  double high = 1;
  double tick_step = 1;  ///< 0: each tick is rounded by its own magnitude
  std::vector<double> ticks;
  bool logarithmic = false;

  double share(double value) const;
  /// Writes a tick with as many decimals as the ticks need; thousands and above use k, M, G, T.
  std::string label(double tick) const;
};
/// Places about `ticks` ticks at multiples of 1, 2 or 5 times a power of ten, within [low, high].
CurveAxis axis_of(double low, double high, int ticks);
/// Logarithmic axis, 0 < low. Ticks are at 1, 2 and 5 times powers of ten, or at the powers only if these are too many.
CurveAxis log_axis_of(double low, double high, int ticks);

struct CurveAxes {
  CurveAxis x;
  CurveAxis y;
  std::string x_name;  ///< "step", "tokens", "minutes", …
  CurveX kind = CurveX::step;
  double seconds_per_unit = 1;

  double of(const RunPoint& point) const;
};
/// Axes that fit all runs. The first losses are far above the rest, so with 50 points or more the highest 2 % may lie
/// outside the chart.
CurveAxes curve_axes(const std::vector<RunLog>& runs, CurveX x, int x_ticks, int y_ticks);

/// Runs that share a style and a legend entry: one run, or all runs of a variant.
struct CurveGroup {
  std::string name;
  std::vector<size_t> runs;  ///< indices into the list of runs
};
std::vector<CurveGroup> curve_groups(const std::vector<RunLog>& runs);

/// "name: training 1.234, validation 1.456 (best 1.432 at step 1200)". Several runs give their means.
std::string curve_summary(const CurveGroup& group, const std::vector<RunLog>& runs);
/// Number of UTF-8 characters in `text`.
size_t text_columns(const std::string& text);

}  // namespace lamina::train
