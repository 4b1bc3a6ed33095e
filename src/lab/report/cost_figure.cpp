#include <algorithm>
#include <cmath>

#include "lamina/base/error.h"
#include "lamina/lab/report/columns.h"
#include "lamina/lab/report/figures.h"
#include "lamina/lab/report/series.h"

namespace lamina::lab::report {
namespace {

constexpr double kCostPanelHeight = 300;

std::string quality_name(const Study& study) {
  return study.words()(study.lower_is_better() ? "head.loss" : "head.accuracy");
}

plot::ChartFrame frame_of(const CostChart& chart, double left, double top, double width) {
  plot::Range cost;
  plot::Range quality;
  for (const CostPoint& point : chart.points) {
    cost.add(point.cost);
    quality.add(point.quality - point.spread.value_or(0));
    quality.add(point.quality + point.spread.value_or(0));
  }
  return {left + 72, top + 8, width - 92, kCostPanelHeight - 60, cost.axis(4), quality.axis(5)};
}

/// Draws labels next to their points. Moves labels down if they would overlap.
void draw_labels(plot::Canvas& canvas, const plot::ChartFrame& frame, std::vector<CostPoint> points) {
  std::sort(points.begin(), points.end(),
            [&frame](const CostPoint& a, const CostPoint& b) { return frame.at_y(a.quality) < frame.at_y(b.quality); });
  struct Box {
    double left, right, y;
  };
  std::vector<Box> placed;
  for (const CostPoint& point : points) {
    const double x = frame.at_x(point.cost);
    const double wide = 6.4 * static_cast<double>(plot::text_columns(point.label));
    const bool before = x + 9 + wide > frame.x + frame.width + 16;
    const double left = before ? x - 9 - wide : x + 9;
    double y = frame.at_y(point.quality) + 4;
    for (bool moved = true; moved;) {
      moved = false;
      for (const Box& other : placed) {
        if (left < other.right && other.left < left + wide && y > other.y - 12 && y < other.y + 12) {
          y = other.y + 12;
          moved = true;
        }
      }
    }
    placed.push_back({left, left + wide, y});
    canvas.text(before ? x - 9 : x + 9, y, point.label,
                {.size = 11, .anchor = before ? plot::Anchor::end : plot::Anchor::start});
  }
}

/// Whether the labels are few and short enough to be next to their points. Otherwise a legend names them.
bool fit_beside_points(const std::vector<std::string>& labels) {
  return labels.size() <= 8 && std::all_of(labels.begin(), labels.end(),
                                           [](const std::string& label) { return plot::text_columns(label) <= 30; });
}

std::vector<std::string> shown_labels(const std::vector<CostChart>& charts) {
  std::vector<std::string> labels;
  for (const CostChart& chart : charts) {
    for (const CostPoint& point : chart.points) {
      if (std::find(labels.begin(), labels.end(), point.label) == labels.end()) labels.push_back(point.label);
    }
  }
  return labels;
}

/// If points coincide, the upper ones get smaller radii, so that a ring of each lower point stays visible.
double radius_of(const std::vector<CostPoint>& points, size_t index, const plot::ChartFrame& frame) {
  size_t below = 0;
  for (size_t i = 0; i < index; ++i) {
    const double across = frame.at_x(points[i].cost) - frame.at_x(points[index].cost);
    const double up = frame.at_y(points[i].quality) - frame.at_y(points[index].quality);
    if (std::abs(across) < 3 && std::abs(up) < 3) ++below;
  }
  return std::max(2.0, 6 - 1.8 * static_cast<double>(below));
}

void draw_panel(plot::Canvas& canvas, const plot::ChartFrame& frame, const CostChart& chart,
                const std::vector<std::string>& labels, const std::string& quality, bool labelled) {
  plot::draw_frame(canvas, frame, chart.title, quality);
  for (size_t i = 0; i < chart.points.size(); ++i) {
    const CostPoint& point = chart.points[i];
    const plot::CurveStyle style = plot::style_of(labels, point.label);
    const double x = frame.at_x(point.cost);
    const double spread = point.spread.value_or(0);
    canvas.line({{x, frame.at_y(point.quality - spread)}, {x, frame.at_y(point.quality + spread)}},
                {style.colour, 1.6, 1, {}, 0});
    canvas.dot(x, frame.at_y(point.quality), radius_of(chart.points, i, frame), style.colour, style.marker);
  }
  if (labelled) draw_labels(canvas, frame, chart.points);
}

}  // namespace

Figure cost_figure(const Study& study) {
  const std::vector<CostChart> charts = cost_charts(study);
  if (charts.empty()) return {};
  const std::vector<std::string> labels = labels_of(study);
  const size_t columns = charts.size() == 1 ? 1 : 2;
  const double width = kPictureWidth / static_cast<double>(columns);
  const size_t rows = (charts.size() + columns - 1) / columns;
  const std::vector<std::string> shown = shown_labels(charts);
  const bool labelled = fit_beside_points(shown);
  const plot::Legend legend = plot::layout_legend(labelled ? std::vector<std::string>() : shown, kPictureWidth - 20);
  const double above = labelled ? 0 : legend.height() + 8;
  const double height = above + kCostPanelHeight * static_cast<double>(rows);
  Figure figure{"cost", study.words()("figure.cost.title"), study.words()("figure.cost.caption"), "", "", ""};
  std::string costs;
  for (const CostChart& chart : charts) {
    costs += str(&chart == charts.data() ? "" : study.words()("list.separator"), chart.title);
  }
  figure.alternative = study.words()("figure.cost.alternative", {{"quality", quality_name(study)}, {"costs", costs}});
  plot::SvgCanvas canvas(kPictureWidth, height, {.title = figure.alternative});
  canvas.box(0, 0, kPictureWidth, height, plot::kPaper);
  plot::draw_legend(canvas, legend, labels, 6);
  for (size_t i = 0; i < charts.size(); ++i) {
    const size_t row = i / columns;
    const double left = width * static_cast<double>(i % columns);
    const double top = above + kCostPanelHeight * static_cast<double>(row);
    draw_panel(canvas, frame_of(charts[i], left, top, width), charts[i], labels,
               column_of(study, study.quality()).title, labelled);
  }
  figure.svg = canvas.finish();
  return figure;
}

}  // namespace lamina::lab::report
