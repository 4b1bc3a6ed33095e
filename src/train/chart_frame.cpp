#include "lamina/train/chart_frame.h"

namespace lamina::train {

void draw_frame(Canvas& canvas, const ChartFrame& frame, const std::string& x_name, const std::string& y_name) {
  const double bottom = frame.y + frame.height;
  for (const double tick : frame.up.ticks) {
    const double y = frame.at_y(tick);
    canvas.line({{frame.x, y}, {frame.x + frame.width, y}}, {kGrid});
    canvas.text(frame.x - 8, y + 4, frame.up.label(tick), 12, Anchor::end, kFaint, false, false);
  }
  for (const double tick : frame.across.ticks) {
    const double x = frame.at_x(tick);
    canvas.line({{x, bottom}, {x, bottom + 5}}, {kFaint});
    canvas.text(x, bottom + 19, frame.across.label(tick), 12, Anchor::middle, kFaint, false, false);
  }
  canvas.line({{frame.x, bottom}, {frame.x + frame.width, bottom}}, {kFaint});
  canvas.text(frame.x + frame.width / 2, bottom + 40, x_name, 13, Anchor::middle, kInk, false, false);
  canvas.text(frame.x - 46, frame.y + frame.height / 2, y_name, 13, Anchor::middle, kInk, false, true);
}

}  // namespace lamina::train
