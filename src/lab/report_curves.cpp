#include <algorithm>

#include "lamina/base/error.h"
#include "lamina/lab/report_charts.h"
#include "lamina/lab/report_drawing.h"
#include "lamina/lab/report_series.h"
#include "lamina/lab/report_table.h"

namespace lamina::lab::report {
namespace {

constexpr double kHeight = 480;

/// The first losses are far above the rest: up to two per cent of many points may lie outside.
train::CurveAxis loss_axis(const std::vector<Band>& bands) {
  std::vector<double> means;
  double highest = -1e300;
  Reach reach;
  for (const Band& band : bands) {
    for (const Band::Point& point : band.points) {
      means.push_back(point.mean);
      reach.add(point.low);
      highest = std::max(highest, point.high);
    }
  }
  std::sort(means.begin(), means.end());
  reach.add(means.size() < 100 ? highest : means[static_cast<size_t>(0.98 * static_cast<double>(means.size() - 1))]);
  return reach.axis(9);
}

void draw_band(train::Canvas& canvas, const train::ChartFrame& frame, const Band& band, const train::Stroke& stroke) {
  train::Canvas::Points edge;
  train::Canvas::Points line;
  for (const Band::Point& point : band.points) {
    edge.emplace_back(frame.at_x(point.x), frame.at_y(point.high));
    line.emplace_back(frame.at_x(point.x), frame.at_y(point.mean));
  }
  for (auto point = band.points.rbegin(); point != band.points.rend(); ++point) {
    edge.emplace_back(frame.at_x(point->x), frame.at_y(point->low));
  }
  const bool spread = std::any_of(band.points.begin(), band.points.end(), [](const auto& p) { return p.seeds > 1; });
  if (spread) canvas.area(edge, stroke.colour, 0.18);
  canvas.line(line, stroke);
  if (line.size() <= 40) {
    for (const auto& [x, y] : line) canvas.dot(x, y, 3, stroke.colour);
  }
}

std::string words(const std::vector<Band>& bands, const char* what) {
  std::string text = str("Mean ", what, " loss over steps, with one standard deviation over seeds. ");
  for (const Band& band : bands) {
    const Band::Point& last = band.points.back();
    text += str(band.label, " ends at ", written(last.mean, Style::loss), " after ", written(last.x, Style::count),
                " steps. ");
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
  Reach steps;
  for (const Band& band : bands) {
    shown.push_back(band.label);
    steps.add(band.points.front().x);
    steps.add(band.points.back().x);
  }
  const Legend legend = legend_of(shown, kPictureWidth - 20);
  const double top = 12 + legend.height();
  const train::ChartFrame frame{
      72, top, kPictureWidth - 92, kHeight - top - 52, train::axis_of(steps.low, steps.high, 9), loss_axis(bands)};
  Figure figure{"curves",
                "Loss curves",
                str(validation ? "Validation" : "Training",
                    " loss, mean over seeds; the band is one standard deviation to either side."),
                validation && !training.empty() ? " Thin lines: training loss." : "",
                words(bands, validation ? "validation" : "training"),
                ""};
  train::SvgCanvas canvas(static_cast<int>(kPictureWidth), static_cast<int>(kHeight), figure.alternative);
  canvas.box(0, 0, kPictureWidth, kHeight, train::kPaper, 1);
  draw_legend(canvas, legend, labels, 6);
  train::draw_frame(canvas, frame, "step", validation ? "validation loss" : "training loss");
  canvas.clip(frame.x, frame.y - 4, frame.width + 8, frame.height + 4);
  if (validation) {
    for (const Band& band : training) {
      train::Stroke stroke = stroke_of(labels, band.label, 1);
      stroke.opacity = 0.35;
      train::Canvas::Points line;
      for (const Band::Point& point : band.points) line.emplace_back(frame.at_x(point.x), frame.at_y(point.mean));
      canvas.line(line, stroke);
    }
  }
  for (const Band& band : bands) draw_band(canvas, frame, band, stroke_of(labels, band.label, 2));
  canvas.unclip();
  figure.svg = canvas.finish();
  return figure;
}

std::vector<Figure> figures_of(const Study& study) {
  std::vector<Figure> figures;
  for (Figure figure : {curves_figure(study), cost_figure(study), extrapolation_figure(study), passkey_figure(study)}) {
    if (!figure.svg.empty()) figures.push_back(std::move(figure));
  }
  return figures;
}

}  // namespace lamina::lab::report
