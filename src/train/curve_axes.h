#pragma once

#include <string>
#include <vector>

#include "lamina/plot/axis.h"
#include "lamina/train/curves.h"

namespace lamina::train {

/// Axes of a chart of loss curves.
struct CurveAxes {
  plot::Axis x;
  plot::Axis y;
  std::string x_name;  ///< "step", "tokens", "minutes", …
  CurveX kind = CurveX::step;
  double seconds_per_unit = 1;

  /// Position of a point on the x axis, in the axis's unit.
  double x_of(const RunPoint& point) const;
};
/// Axes that fit all runs. The first losses are far above the rest, so if there are 50 points or more, the highest 2 %
/// may lie outside the chart.
CurveAxes curve_axes(const std::vector<RunLog>& runs, CurveX x, int x_ticks, int y_ticks);

/// Runs that share a style and a legend entry: one run, or all runs of a variant.
struct CurveGroup {
  std::string name;
  std::vector<size_t> runs;  ///< indices into the list of runs
};
std::vector<CurveGroup> curve_groups(const std::vector<RunLog>& runs);

/// For example "name: training 1.234, validation 1.456 (best 1.432 at step 1200)". For a group of several runs: their
/// means.
std::string curve_summary(const CurveGroup& group, const std::vector<RunLog>& runs);

}  // namespace lamina::train
