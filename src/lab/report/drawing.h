#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lamina/train/chart_frame.h"

namespace lamina::lab::report {

inline constexpr double kPictureWidth = 900;

/// Style by the label's index in the list, so that a label looks the same in every chart.
train::ChartStyle style_of(const std::vector<std::string>& labels, const std::string& label);

/// Legend layout above a chart: lines of (x, label).
struct Legend {
  std::vector<std::vector<std::pair<double, std::string>>> lines;
  double height() const { return 20 * static_cast<double>(lines.size()) + 8; }
};
Legend legend_of(const std::vector<std::string>& shown, double width);
void draw_legend(train::Canvas& canvas, const Legend& legend, const std::vector<std::string>& labels, double top);

/// Draws lines with markers (no markers above 40 points). Overlapping lines alternate in colour and take turns with
/// markers.
void draw_curves(train::Canvas& canvas, const std::vector<train::Canvas::Points>& lines,
                 const std::vector<train::ChartStyle>& styles);

/// Minimum and maximum of the added values.
struct Reach {
  double low = 1e300;
  double high = -1e300;
  void add(double value) {
    low = value < low ? value : low;
    high = value > high ? value : high;
  }
  bool empty() const { return low > high; }
  /// Axis with a margin of 5 % on either side.
  train::CurveAxis axis(int ticks) const;
};

}  // namespace lamina::lab::report
