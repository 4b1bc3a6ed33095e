#pragma once

#include "lamina/train/chart_frame.h"
#include "lamina/train/curves.h"

namespace lamina::train {

inline constexpr int kCurvesWidth = 900;

/// Loss curves with the legend below them, laid out before there is a canvas: the height depends on the legend.
class CurvesDrawing {
 public:
  /// Both must outlive the drawing.
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
  std::vector<std::string> legend_;  ///< a line for each group
};

}  // namespace lamina::train
