#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lamina/train/chart_frame.h"

namespace lamina::lab::report {

inline constexpr double kPictureWidth = 900;

/// The stroke of the label's place in the list: its colour, dashed from the eighth on.
train::Stroke stroke_of(const std::vector<std::string>& labels, const std::string& label, double width);

/// How labels are laid out above a chart: lines of (x, label).
struct Legend {
  std::vector<std::vector<std::pair<double, std::string>>> lines;
  double height() const { return 20 * static_cast<double>(lines.size()) + 8; }
};
Legend legend_of(const std::vector<std::string>& shown, double width);
void draw_legend(train::Canvas& canvas, const Legend& legend, const std::vector<std::string>& labels, double top);

/// Least and greatest of what it was given.
struct Reach {
  double low = 1e300;
  double high = -1e300;
  void add(double value) {
    low = value < low ? value : low;
    high = value > high ? value : high;
  }
  bool empty() const { return low > high; }
  /// Five per cent more on either side.
  train::CurveAxis axis(int ticks) const;
};

}  // namespace lamina::lab::report
