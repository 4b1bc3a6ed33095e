#include "lamina/lab/report/drawing.h"

#include <algorithm>
#include <cmath>

namespace lamina::lab::report {

train::ChartStyle style_of(const std::vector<std::string>& labels, const std::string& label) {
  return train::chart_style(static_cast<size_t>(std::find(labels.begin(), labels.end(), label) - labels.begin()));
}

Legend legend_of(const std::vector<std::string>& shown, double width) {
  Legend legend;
  double x = 0;
  for (const std::string& label : shown) {
    const double wide = 48 + 7.2 * static_cast<double>(train::text_columns(label));
    if (legend.lines.empty() || (x > 0 && x + wide > width)) {
      legend.lines.emplace_back();
      x = 0;
    }
    legend.lines.back().emplace_back(x, label);
    x += wide;
  }
  return legend;
}

void draw_legend(train::Canvas& canvas, const Legend& legend, const std::vector<std::string>& labels, double top) {
  double y = top + 12;
  for (const auto& line : legend.lines) {
    for (const auto& [x, label] : line) {
      const train::ChartStyle style = style_of(labels, label);
      canvas.line({{x + 10, y}, {x + 38, y}}, style.stroke(2.4));
      canvas.dot(x + 24, y, 3.5, style.colour, style.marker);
      canvas.text(x + 44, y + 4, label, 12, train::Anchor::start, train::kInk, false, false);
    }
    y += 20;
  }
}

void draw_curves(train::Canvas& canvas, const std::vector<train::Canvas::Points>& lines,
                 const std::vector<train::ChartStyle>& styles) {
  const std::vector<train::Overlap> overlaps = train::overlaps_of(lines);
  for (size_t i = 0; i < lines.size(); ++i) {
    canvas.line(lines[i], train::overlapping(styles[i].stroke(2), overlaps[i]));
  }
  for (size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].size() > 40) continue;
    for (size_t point = 0; point < lines[i].size(); ++point) {
      if (point % overlaps[i].count != overlaps[i].index) continue;
      canvas.dot(lines[i][point].first, lines[i][point].second, 3.2, styles[i].colour, styles[i].marker);
    }
  }
}

train::CurveAxis Reach::axis(int ticks) const {
  const double room = 0.05 * (high - low);
  // Values that differ only by rounding count as one; ticks between them would have equal labels.
  const bool apart = high - low > 1e-9 * std::max(std::abs(low), std::abs(high));
  return apart ? train::axis_of(low - room, high + room, ticks) : train::axis_of(low, low, ticks);
}

}  // namespace lamina::lab::report
