#pragma once

#include "lamina/train/chart_frame.h"
#include "lamina/train/curves.h"

namespace lamina::train {

inline constexpr int kCurvesWidth = 900;

/// Chart of loss curves with a legend below. Laid out before drawing, because the height depends on the legend.
class CurvesDrawing {
 public:
  /// `runs` and `options` must outlive the drawing.
  CurvesDrawing(const std::vector<RunLog>& runs, const CurveOptions& options);

  int height() const;
  void draw(Canvas& canvas) const;

 private:
  size_t legend_columns() const;
  void draw_runs(Canvas& canvas) const;
  void draw_legend(Canvas& canvas) const;

  const std::vector<RunLog>& runs_;
  const CurveOptions& options_;
  CurveAxes axes_;
  ChartFrame frame_;
  std::vector<CurveGroup> groups_;
  std::vector<std::string> legend_;  ///< one line per group
};

}  // namespace lamina::train
