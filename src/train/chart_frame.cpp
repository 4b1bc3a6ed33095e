#include "lamina/train/chart_frame.h"

#include <cmath>

namespace lamina::train {
namespace {

bool overlap(const Canvas::Points& a, const Canvas::Points& b) {
  if (a.size() != b.size() || a.empty()) return false;
  size_t near = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::abs(a[i].first - b[i].first) > 0.5) return false;
    if (std::abs(a[i].second - b[i].second) <= 2.5) ++near;
  }
  return 3 * near >= 2 * a.size();
}

}  // namespace

ChartStyle chart_style(size_t place) {
  static const std::array<std::vector<double>, 4> kDashes{{{}, {7, 4}, {2, 3}, {9, 3, 2, 3}}};
  constexpr std::array<Marker, 4> kMarkers{Marker::circle, Marker::square, Marker::triangle, Marker::diamond};
  const size_t round = place / kChartColours.size() % kDashes.size();
  return {kChartColours[place % kChartColours.size()], kDashes[round], kMarkers[round]};
}

std::vector<Overlap> overlaps_of(const std::vector<Canvas::Points>& curves) {
  std::vector<Overlap> overlaps(curves.size());
  std::vector<size_t> leader(curves.size());
  for (size_t i = 0; i < curves.size(); ++i) {
    leader[i] = i;
    for (size_t j = 0; j < i; ++j) {
      if (leader[j] == j && overlap(curves[j], curves[i])) {
        leader[i] = j;
        overlaps[i].index = overlaps[j].count++;
        break;
      }
    }
  }
  for (size_t i = 0; i < curves.size(); ++i) overlaps[i].count = overlaps[leader[i]].count;
  return overlaps;
}

Stroke overlapping(Stroke stroke, const Overlap& overlap) {
  constexpr double kDash = 9;
  if (overlap.count == 1) return stroke;
  stroke.dashes.clear();
  if (overlap.index == 0) return stroke;
  stroke.dashes = {kDash, kDash * static_cast<double>(overlap.count - 1)};
  stroke.dash_offset = kDash * static_cast<double>(overlap.count - overlap.index);
  return stroke;
}

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
