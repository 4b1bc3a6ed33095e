#include "lamina/lab/report_drawing.h"

#include <algorithm>
#include <cmath>

namespace lamina::lab::report {

train::Stroke stroke_of(const std::vector<std::string>& labels, const std::string& label, double width) {
  const auto place = static_cast<size_t>(std::find(labels.begin(), labels.end(), label) - labels.begin());
  const size_t colours = train::kChartColours.size();
  return {train::kChartColours[place % colours], width, 1, place / colours % 2 == 1};
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
      const train::Stroke stroke = stroke_of(labels, label, 2.4);
      canvas.line({{x + 16, y}, {x + 38, y}}, stroke);
      canvas.text(x + 44, y + 4, label, 12, train::Anchor::start, train::kInk, false, false);
    }
    y += 20;
  }
}

train::CurveAxis Reach::axis(int ticks) const {
  const double room = 0.05 * (high - low);
  // What differs by rounding alone is one value: ticks between would be the same numbers.
  const bool apart = high - low > 1e-9 * std::max(std::abs(low), std::abs(high));
  return apart ? train::axis_of(low - room, high + room, ticks) : train::axis_of(low, low, ticks);
}

}  // namespace lamina::lab::report
