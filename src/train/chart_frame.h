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

/// How the curve at this place of a list is drawn. Colours repeat after seven places; the dashes and the marker then
/// change, so that 28 places differ.
struct ChartStyle {
  Colour colour;
  std::vector<double> dashes;
  Marker marker = Marker::circle;

  Stroke stroke(double width, double opacity = 1) const { return {colour, width, opacity, dashes, 0}; }
};
ChartStyle chart_style(size_t place);

/// Where a curve stands among those that lie on it: the `index`-th of `count`.
struct Overlap {
  size_t index = 0;
  size_t count = 1;
};
/// Curves overlap if they have the same x and, at two thirds of their points or more, the same y to 2.5 pixels.
std::vector<Overlap> overlaps_of(const std::vector<Canvas::Points>& curves);
/// The stroke of a curve among those that lie on it. The first is solid; each other one covers its own share of it with
/// dashes, so that the colours alternate.
Stroke overlapping(Stroke stroke, const Overlap& overlap);

/// The frame that a chart's lines and points lie in, in pixels, and what its sides mean.
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

/// Lines across at the ticks, labels on both sides, and the names of both.
void draw_frame(Canvas& canvas, const ChartFrame& frame, const std::string& x_name, const std::string& y_name);

}  // namespace lamina::train
