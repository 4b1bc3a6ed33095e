#include <algorithm>

#include "lamina/base/error.h"
#include "lamina/lab/report/columns.h"
#include "lamina/lab/report/figures.h"
#include "lamina/lab/report/series.h"

namespace lamina::lab::report {
namespace {

constexpr double kHeight = 480;

/// The first losses are far above the rest, so with 100 points or more the highest 2 % may lie outside the chart.
plot::Axis loss_axis(const std::vector<Band>& bands) {
  std::vector<double> means;
  double highest = -1e300;
  plot::Range range;
  for (const Band& band : bands) {
    for (const Band::Point& point : band.points) {
      means.push_back(point.mean);
      range.add(point.low);
      highest = std::max(highest, point.high);
    }
  }
  std::sort(means.begin(), means.end());
  range.add(means.size() < 100 ? highest : means[static_cast<size_t>(0.98 * static_cast<double>(means.size() - 1))]);
  return range.axis(9);
}

plot::Canvas::Points line_of(const Band& band, const plot::ChartFrame& frame) {
  plot::Canvas::Points line;
  for (const Band::Point& point : band.points) line.emplace_back(frame.at_x(point.x), frame.at_y(point.mean));
  return line;
}

void draw_spread(plot::Canvas& canvas, const plot::ChartFrame& frame, const Band& band, plot::Colour colour,
                 double opacity) {
  const bool spread = std::any_of(band.points.begin(), band.points.end(), [](const auto& p) { return p.seeds > 1; });
  if (!spread) return;
  plot::Canvas::Points edge;
  for (const Band::Point& point : band.points) edge.emplace_back(frame.at_x(point.x), frame.at_y(point.high));
  for (auto point = band.points.rbegin(); point != band.points.rend(); ++point) {
    edge.emplace_back(frame.at_x(point->x), frame.at_y(point->low));
  }
  canvas.area(edge, colour, opacity);
}

/// Draws the line inside the frame and its name in the margin, where no curve can cross it.
void draw_target(plot::Canvas& canvas, const plot::ChartFrame& frame, const Number& target, const std::string& name) {
  if (!target || *target < frame.y_axis.low || *target > frame.y_axis.high) return;
  const double y = frame.at_y(*target);
  canvas.line({{frame.x, y}, {frame.x + frame.width, y}}, {plot::kFaint, 1, 1, {5, 3}, 0});
  canvas.text(frame.x + frame.width + 12, y + 4, name, {.size = 11, .colour = plot::kFaint});
}

std::string alternative_of(const Study& study, const std::vector<Band>& bands, const std::string& losses) {
  std::string text = study.words()("figure.curves.alternative", {{"losses", losses}});
  for (const Band& band : bands) {
    const Band::Point& last = band.points.back();
    text += " " + study.words()("figure.curves.end", {{"variant", band.label},
                                                      {"loss", written(last.mean, Style::loss)},
                                                      {"steps", written(last.x, Style::count)}});
  }
  return text;
}

}  // namespace

Figure curves_figure(const Study& study) {
  std::vector<Band> bands = bands_of(study, Losses::validation);
  const std::vector<Band> training = bands_of(study, Losses::training);
  const bool validation = !bands.empty();
  if (!validation) bands = training;
  if (bands.empty()) return {};
  const std::vector<std::string> labels = labels_of(study);
  std::vector<std::string> shown;
  plot::Range steps;
  for (const Band& band : bands) {
    shown.push_back(band.label);
    steps.add(band.points.front().x);
    steps.add(band.points.back().x);
  }
  const plot::Legend legend = plot::layout_legend(shown, kPictureWidth - 20);
  const double top = 12 + legend.height();
  const plot::ChartFrame frame{72,
                               top,
                               kPictureWidth - (study.target ? 132 : 92),
                               kHeight - top - 52,
                               plot::linear_axis(steps.low, steps.high, 9),
                               loss_axis(bands)};
  const Words& words = study.words();
  const std::string losses = words(validation ? "chart.validation_loss" : "chart.training_loss");
  Figure figure{"curves",
                words("figure.curves.title"),
                words("figure.curves.caption", {{"losses", losses}}),
                validation && !training.empty() ? " " + words("figure.curves.thin") : "",
                alternative_of(study, bands, losses),
                ""};
  plot::SvgCanvas canvas(kPictureWidth, kHeight, {.title = figure.alternative});
  canvas.box(0, 0, kPictureWidth, kHeight, plot::kPaper);
  plot::draw_legend(canvas, legend, labels, 6);
  plot::draw_frame(canvas, frame, words("chart.step"), losses);
  draw_target(canvas, frame, study.target, words("chart.target"));
  canvas.clip(frame.x - 4, frame.y - 4, frame.width + 8, frame.height + 4);  // keeps the outermost markers whole
  if (validation) {
    for (const Band& band : training) {
      canvas.line(line_of(band, frame), plot::style_of(labels, band.label).stroke(1, 0.3));
    }
  }
  std::vector<plot::Canvas::Points> lines;
  std::vector<plot::CurveStyle> styles;
  for (const Band& band : bands) {
    lines.push_back(line_of(band, frame));
    styles.push_back(plot::style_of(labels, band.label));
    draw_spread(canvas, frame, band, styles.back().colour, std::min(0.18, 1.2 / static_cast<double>(bands.size())));
  }
  plot::draw_curves(canvas, lines, styles);
  canvas.unclip();
  figure.svg = canvas.finish();
  return figure;
}

std::vector<Figure> figures_of(const Study& study) {
  std::vector<Figure> figures;
  for (Figure figure : {effects_figure(study), curves_figure(study), scaling_figure(study), cost_figure(study),
                        extrapolation_figure(study), passkey_figure(study)}) {
    if (!figure.svg.empty()) figures.push_back(std::move(figure));
  }
  return figures;
}

}  // namespace lamina::lab::report
