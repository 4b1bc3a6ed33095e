#pragma once

#include <array>
#include <string>

#include "lamina/train/canvas.h"
#include "lamina/train/curve_axes.h"

namespace lamina::train {

// Told apart by people who see colours differently too (Okabe & Ito 2008), dark enough for a light background.
inline constexpr std::array<Colour, 7> kChartColours{
    {{0, 114, 178}, {213, 94, 0}, {0, 158, 115}, {204, 121, 167}, {230, 159, 0}, {86, 180, 233}, {90, 90, 90}}};
inline constexpr Colour kInk{40, 40, 40};
inline constexpr Colour kFaint{110, 110, 110};
inline constexpr Colour kGrid{228, 228, 228};
inline constexpr Colour kPaper{255, 255, 255};

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
