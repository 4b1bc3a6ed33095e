#pragma once

#include <string>
#include <vector>

#include "lamina/train/curves.h"

namespace lamina::train {

/// One side of a picture: what it reaches from and to, and where its labels stand.
struct CurveAxis {
  double low = 0;
  double high = 1;
  double tick_step = 1;  ///< 0: every tick is rounded by its own size
  std::vector<double> ticks;
  bool logarithmic = false;

  double share(double value) const;
  /// As many decimals as the ticks need; thousands and millions as k, M, G, T.
  std::string label(double tick) const;
};
/// Ticks at multiples of 1, 2 or 5 times a power of ten, about as many as asked for, inside low … high.
CurveAxis axis_of(double low, double high, int ticks);
/// A logarithmic axis, 0 < low: ticks at 1, 2 and 5 times powers of ten, or at the powers alone if those are too many.
CurveAxis log_axis_of(double low, double high, int ticks);

struct CurveAxes {
  CurveAxis x;
  CurveAxis y;
  std::string x_name;  ///< "step", "tokens", "minutes", …
  CurveX kind = CurveX::step;
  double seconds_per_unit = 1;

  double of(const RunPoint& point) const;
};
/// For all runs together. The first losses are far above the rest: if there are fifty points or more, the highest two
/// per cent may lie outside.
CurveAxes curve_axes(const std::vector<RunLog>& runs, CurveX x, int x_ticks, int y_ticks);

/// Runs that share a style and a line of the legend: one run, or all runs of a variant.
struct CurveGroup {
  std::string name;
  std::vector<size_t> runs;  ///< indices
};
std::vector<CurveGroup> curve_groups(const std::vector<RunLog>& runs);

/// "name: training 1.234, validation 1.456 (best 1.432 at step 1200)"; for several runs their means.
std::string curve_summary(const CurveGroup& group, const std::vector<RunLog>& runs);
/// Characters of UTF-8.
size_t text_columns(const std::string& text);

}  // namespace lamina::train
