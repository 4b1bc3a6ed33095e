#pragma once

#include <array>

#include "lamina/plot/axis.h"
#include "lamina/plot/canvas.h"

namespace lamina::plot {

// Distinguishable by colour-blind readers (Okabe & Ito 2008), and dark enough for a light background.
inline constexpr std::array<Colour, 7> kChartColours{
    {{0, 114, 178}, {213, 94, 0}, {0, 158, 115}, {204, 121, 167}, {230, 159, 0}, {86, 180, 233}, {90, 90, 90}}};

/// Style of the curve at an index of a list. The seven colours repeat; each repeat has other dashes and markers, so 28
/// indices have distinct styles.
struct CurveStyle {
  Colour colour;
  std::vector<double> dashes;
  Marker marker = Marker::circle;

  Stroke stroke(double width, double opacity = 1) const { return {colour, width, opacity, dashes, 0}; }
};
CurveStyle curve_style(size_t index);

/// Position of a curve among the `count` curves that overlap: it is number `index`.
struct Overlap {
  size_t index = 0;
  size_t count = 1;
};
/// Finds curves that overlap: their x are equal and, at two thirds of the points or more, their y differ by at most 2.5
/// pixels.
std::vector<Overlap> overlaps_of(const std::vector<Canvas::Points>& curves);
/// Stroke of a curve that overlaps others. The first curve is solid. The others are dashed; each covers its own share
/// of the line, so that the colours alternate.
Stroke overlapping(Stroke stroke, const Overlap& overlap);

/// Plot area of a chart in pixels, with its axes.
struct ChartFrame {
  double x = 0;
  double y = 0;
  double width = 0;
  double height = 0;
  Axis x_axis;
  Axis y_axis;

  double at_x(double value) const { return x + width * x_axis.share(value); }
  double at_y(double value) const { return y + height * (1 - y_axis.share(value)); }
};
/// Draws grid lines at the ticks, tick labels on both axes, and the axis names.
void draw_frame(Canvas& canvas, const ChartFrame& frame, const std::string& x_name, const std::string& y_name);

/// Draws lines with markers, or without if there are more than 40 points. Overlapping lines alternate in colour and in
/// markers.
void draw_curves(Canvas& canvas, const std::vector<Canvas::Points>& lines, const std::vector<CurveStyle>& styles);

/// A legend above a chart: lines of (x, label).
struct Legend {
  std::vector<std::vector<std::pair<double, std::string>>> lines;
  double height() const { return 20 * static_cast<double>(lines.size()) + 8; }
};
Legend layout_legend(const std::vector<std::string>& labels, double width);
/// Draws a legend. The style of a label is that of its index in `labels`.
void draw_legend(Canvas& canvas, const Legend& legend, const std::vector<std::string>& labels, double top);
/// The style of a label by its index in the list. So a label looks the same in every chart.
CurveStyle style_of(const std::vector<std::string>& labels, const std::string& label);

}  // namespace lamina::plot
