#pragma once

#include <array>
#include <string>

#include "lamina/train/canvas.h"
#include "lamina/train/curve_axes.h"

namespace lamina::train {

// Safe for colour-blind readers (Okabe & Ito 2008) and dark enough for a light background.
inline constexpr std::array<Colour, 7> kChartColours{
    {{0, 114, 178}, {213, 94, 0}, {0, 158, 115}, {204, 121, 167}, {230, 159, 0}, {86, 180, 233}, {90, 90, 90}}};
inline constexpr Colour kInk{40, 40, 40};
inline constexpr Colour kFaint{110, 110, 110};
inline constexpr Colour kGrid{228, 228, 228};
inline constexpr Colour kPaper{255, 255, 255};

/// Style of the curve at an index of a list. The seven colours repeat; with each repeat the dashes and the marker
/// change, so that 28 indices have distinct styles.
struct ChartStyle {
  Colour colour;
  std::vector<double> dashes;
  Marker marker = Marker::circle;

  Stroke stroke(double width, double opacity = 1) const { return {colour, width, opacity, dashes, 0}; }
};
ChartStyle chart_style(size_t place);

/// Position of a curve among the curves that overlap it: the `index`-th of `count`.
struct Overlap {
  size_t index = 0;
  size_t count = 1;
};
/// Curves overlap if their x are equal and, at two thirds of the points or more, their y differ by ≤ 2.5 pixels.
std::vector<Overlap> overlaps_of(const std::vector<Canvas::Points>& curves);
/// Stroke of a curve that overlaps others. The first curve is solid. Each other curve is dashed and covers its own
/// share of the line, so that the colours alternate.
Stroke overlapping(Stroke stroke, const Overlap& overlap);

/// Plot area of a chart in pixels, with its x and y axes.
struct ChartFrame {
  double x = 0;
  double y = 0;
  double width = 0;
  double height = 0;
  CurveAxis across;
  CurveAxis up;

  double at_x(double value) const { return x + width * across.share(value); }
  double at_y(double value) const { return y + height * (1 - up.share(value)); }
};

/// Draws grid lines at the ticks, tick labels on both axes, and the axis names.
void draw_frame(Canvas& canvas, const ChartFrame& frame, const std::string& x_name, const std::string& y_name);

}  // namespace lamina::train
