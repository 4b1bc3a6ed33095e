#include "lamina/plot/chart.h"

#include <algorithm>
#include <cmath>

namespace lamina::plot {
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

CurveStyle curve_style(size_t index) {
  static const std::array<std::vector<double>, 4> kDashes{{{}, {7, 4}, {2, 3}, {9, 3, 2, 3}}};
  constexpr std::array<Marker, 4> kMarkers{Marker::circle, Marker::square, Marker::triangle, Marker::diamond};
  const size_t round = index / kChartColours.size() % kDashes.size();
  return {kChartColours[index % kChartColours.size()], kDashes[round], kMarkers[round]};
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
  for (const double tick : frame.y_axis.ticks) {
    const double y = frame.at_y(tick);
    canvas.line({{frame.x, y}, {frame.x + frame.width, y}}, {kGrid});
    canvas.text(frame.x - 8, y + 4, frame.y_axis.label(tick), {.anchor = Anchor::end, .colour = kFaint});
  }
  for (const double tick : frame.x_axis.ticks) {
    const double x = frame.at_x(tick);
    canvas.line({{x, bottom}, {x, bottom + 5}}, {kFaint});
    canvas.text(x, bottom + 19, frame.x_axis.label(tick), {.anchor = Anchor::middle, .colour = kFaint});
  }
  canvas.line({{frame.x, bottom}, {frame.x + frame.width, bottom}}, {kFaint});
  canvas.text(frame.x + frame.width / 2, bottom + 40, x_name, {.size = 13, .anchor = Anchor::middle});
  canvas.text(frame.x - 46, frame.y + frame.height / 2, y_name,
              {.size = 13, .anchor = Anchor::middle, .upwards = true});
}

CurveStyle style_of(const std::vector<std::string>& labels, const std::string& label) {
  return curve_style(static_cast<size_t>(std::find(labels.begin(), labels.end(), label) - labels.begin()));
}

Legend layout_legend(const std::vector<std::string>& labels, double width) {
  Legend legend;
  double x = 0;
  for (const std::string& label : labels) {
    const double wide = 48 + 7.2 * static_cast<double>(text_columns(label));
    if (legend.lines.empty() || (x > 0 && x + wide > width)) {
      legend.lines.emplace_back();
      x = 0;
    }
    legend.lines.back().emplace_back(x, label);
    x += wide;
  }
  return legend;
}

void draw_legend(Canvas& canvas, const Legend& legend, const std::vector<std::string>& labels, double top) {
  double y = top + 12;
  for (const auto& line : legend.lines) {
    for (const auto& [x, label] : line) {
      const CurveStyle style = style_of(labels, label);
      canvas.line({{x + 10, y}, {x + 38, y}}, style.stroke(2.4));
      canvas.dot(x + 24, y, 3.5, style.colour, style.marker);
      canvas.text(x + 44, y + 4, label, {});
    }
    y += 20;
  }
}

void draw_curves(Canvas& canvas, const std::vector<Canvas::Points>& lines, const std::vector<CurveStyle>& styles) {
  const std::vector<Overlap> overlaps = overlaps_of(lines);
  for (size_t i = 0; i < lines.size(); ++i) {
    canvas.line(lines[i], overlapping(styles[i].stroke(2), overlaps[i]));
  }
  for (size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].size() > 40) continue;
    for (size_t point = 0; point < lines[i].size(); ++point) {
      if (point % overlaps[i].count != overlaps[i].index) continue;
      canvas.dot(lines[i][point].first, lines[i][point].second, 3.2, styles[i].colour, styles[i].marker);
    }
  }
}

}  // namespace lamina::plot
