#include "lamina/train/curves.h"

#include <algorithm>
#include <cmath>

#include "lamina/base/error.h"
#include "lamina/plot/chart.h"
#include "lamina/plot/png.h"
#include "lamina/plot/svg_canvas.h"
#include "lamina/train/curve_axes.h"

namespace lamina::train {
namespace {

using plot::Canvas;
using plot::ChartFrame;
using plot::CurveStyle;
using plot::Overlap;

constexpr int kCurvesWidth = 900;
constexpr double kLeft = 64;
constexpr double kRight = 20;
constexpr double kBottom = 52;
constexpr double kChartHeight = 520;  // includes the x axis but not the legend
constexpr double kLegendLeft = 20;
constexpr double kLegendSample = 40;  // distance from the left edge of an entry to its text
constexpr double kLegendRow = 20;
constexpr double kLetter = 7.1;  // average width of a letter at font size 12

/// Converts points to pixels. Several points in one pixel column become their minimum and maximum.
Canvas::Points pixels(const std::vector<RunPoint>& points, const ChartFrame& frame, const CurveAxes& axes) {
  const auto at_x = [&](const RunPoint& point) { return frame.at_x(axes.x_of(point)); };
  Canvas::Points result;
  size_t begin = 0;
  while (begin < points.size()) {
    const double column = std::floor(at_x(points[begin]));
    size_t end = begin;
    size_t least = begin;
    size_t greatest = begin;
    for (; end < points.size() && std::floor(at_x(points[end])) == column; ++end) {
      if (points[end].loss < points[least].loss) least = end;
      if (points[end].loss > points[greatest].loss) greatest = end;
    }
    for (const size_t i : {std::min(least, greatest), std::max(least, greatest)}) {
      result.emplace_back(at_x(points[i]), frame.at_y(points[i].loss));
      if (least == greatest) break;
    }
    begin = end;
  }
  return result;
}

Canvas::Points every_point(const std::vector<RunPoint>& points, const ChartFrame& frame, const CurveAxes& axes) {
  Canvas::Points result;
  for (const RunPoint& point : points) result.emplace_back(frame.at_x(axes.x_of(point)), frame.at_y(point.loss));
  return result;
}

/// Draws the markers of a curve; leaves some out if they would touch. Overlapping curves take turns with their markers.
void draw_markers(Canvas& canvas, const Canvas::Points& points, const CurveStyle& style, const Overlap& overlap,
                  double width) {
  const size_t every = 1 + points.size() * 9 / static_cast<size_t>(width);
  for (size_t i = 0; i < points.size(); ++i) {
    const bool last = i + 1 == points.size();
    if (i % every != 0 && !last) continue;
    if (overlap.count > 1 && i / every % overlap.count != overlap.index) continue;
    canvas.dot(points[i].first, points[i].second, 3.5, style.colour, style.marker);
  }
}

/// Cuts text to `columns` UTF-8 characters, with an ellipsis at the end.
std::string shortened(const std::string& text, size_t columns) {
  if (plot::text_columns(text) <= columns) return text;
  size_t end = 0;
  for (size_t seen = 0; end < text.size(); ++end) {
    if ((static_cast<unsigned char>(text[end]) & 0xC0U) != 0x80U && ++seen == columns) break;
  }
  return text.substr(0, end) + "…";
}

/// A chart of loss curves with a legend below. It is laid out before drawing, because the height depends on the legend.
class CurvesDrawing {
 public:
  /// `runs` and `options` must outlive the drawing.
  CurvesDrawing(const std::vector<RunLog>& runs, const CurveOptions& options);

  int height() const;
  void draw(Canvas& canvas) const;

 private:
  size_t legend_columns() const;
  void draw_runs(Canvas& canvas) const;
  void draw_legend(Canvas& canvas) const;

  const std::vector<RunLog>& runs_;
  const CurveOptions& options_;
  CurveAxes axes_;
  ChartFrame frame_;
  std::vector<CurveGroup> groups_;
  std::vector<std::string> legend_;  ///< one line per group
};

CurvesDrawing::CurvesDrawing(const std::vector<RunLog>& runs, const CurveOptions& options)
    : runs_(runs), options_(options), axes_(curve_axes(runs, options.x, 9, 11)), groups_(curve_groups(runs)) {
  const double top = options.title.empty() ? 20 : 46;
  frame_ = {kLeft, top, kCurvesWidth - kLeft - kRight, kChartHeight - top - kBottom, axes_.x, axes_.y};
  const auto most = static_cast<size_t>((kCurvesWidth - 2 * kLegendLeft - kLegendSample) / kLetter);
  for (const CurveGroup& group : groups_) legend_.push_back(shortened(curve_summary(group, runs), most));
}

size_t CurvesDrawing::legend_columns() const {
  double widest = 1;
  for (const std::string& line : legend_) {
    widest = std::max(widest, kLegendSample + kLetter * static_cast<double>(plot::text_columns(line)) + 16);
  }
  return std::max<size_t>(1, static_cast<size_t>((kCurvesWidth - 2 * kLegendLeft) / widest));
}

int CurvesDrawing::height() const {
  const size_t rows = (legend_.size() + legend_columns() - 1) / legend_columns();
  return static_cast<int>(kChartHeight + kLegendRow * static_cast<double>(rows) + 12);
}

void CurvesDrawing::draw(Canvas& canvas) const {
  canvas.box(0, 0, kCurvesWidth, height(), plot::kPaper);
  if (!options_.title.empty()) canvas.text(kLeft, 28, options_.title, {.size = 16, .bold = true});
  plot::draw_frame(canvas, frame_, axes_.x_name, "loss");
  // 6 pixels of margin, so that the last markers are whole.
  canvas.clip(frame_.x, frame_.y, frame_.width + 6, frame_.height);
  draw_runs(canvas);
  canvas.unclip();
  draw_legend(canvas);
}

void CurvesDrawing::draw_runs(Canvas& canvas) const {
  struct Curve {
    const RunLog* run;
    CurveStyle style;
  };
  std::vector<Curve> curves;
  std::vector<Canvas::Points> train;
  std::vector<Canvas::Points> validation;
  for (size_t i = 0; i < groups_.size(); ++i) {
    for (const size_t run : groups_[i].runs) {
      curves.push_back({&runs_[run], plot::curve_style(i)});
      train.push_back(pixels(smoothed(runs_[run].train, options_.smoothing), frame_, axes_));
      validation.push_back(every_point(runs_[run].validation, frame_, axes_));
    }
  }
  const std::vector<Overlap> over_train = plot::overlaps_of(train);
  const std::vector<Overlap> over_validation = plot::overlaps_of(validation);
  for (size_t i = 0; i < curves.size(); ++i) {
    const CurveStyle& style = curves[i].style;
    if (options_.smoothing > 0) canvas.line(pixels(curves[i].run->train, frame_, axes_), {style.colour, 1, 0.2, {}, 0});
    // Next to a validation curve, the training curve is thinner and paler.
    const bool alone = validation[i].size() < 2;
    canvas.line(train[i], plot::overlapping(style.stroke(alone ? 1.8 : 1.1, alone ? 1 : 0.55), over_train[i]));
  }
  for (size_t i = 0; i < curves.size(); ++i) {
    canvas.line(validation[i], plot::overlapping(curves[i].style.stroke(2), over_validation[i]));
  }
  for (size_t i = 0; i < curves.size(); ++i) {
    draw_markers(canvas, validation[i], curves[i].style, over_validation[i], frame_.width);
  }
}

void CurvesDrawing::draw_legend(Canvas& canvas) const {
  const size_t columns = legend_columns();
  const double width = (kCurvesWidth - 2 * kLegendLeft) / static_cast<double>(columns);
  for (size_t i = 0; i < legend_.size(); ++i) {
    const double x = kLegendLeft + width * static_cast<double>(i % columns);
    const double y = kChartHeight + kLegendRow * (static_cast<double>(i / columns) + 0.5);
    const CurveStyle style = plot::curve_style(i);
    canvas.line({{x, y}, {x + 32, y}}, style.stroke(2.2));
    const bool validation = std::any_of(groups_[i].runs.begin(), groups_[i].runs.end(),
                                        [this](size_t run) { return !runs_[run].validation.empty(); });
    if (validation) canvas.dot(x + 16, y, 3.5, style.colour, style.marker);
    canvas.text(x + kLegendSample, y + 4, legend_[i], {});
  }
}

}  // namespace

std::string curves_svg(const std::vector<RunLog>& runs, const CurveOptions& options) {
  const CurvesDrawing drawing(runs, options);
  plot::SvgCanvas canvas(kCurvesWidth, drawing.height());
  drawing.draw(canvas);
  return canvas.finish();
}

void write_curves_png(const std::vector<RunLog>& runs, const CurveOptions& options, const std::string& path) {
  const CurvesDrawing drawing(runs, options);
  plot::write_png(path, kCurvesWidth, drawing.height(), [&](Canvas& canvas) { drawing.draw(canvas); });
}

std::vector<RunPoint> smoothed(const std::vector<RunPoint>& points, double smoothing) {
  LAMINA_CHECK(smoothing >= 0 && smoothing < 1, "smoothing ", smoothing, "; expected at least 0 and less than 1");
  std::vector<RunPoint> result = points;
  double sum = 0;
  double weight = 0;
  for (RunPoint& point : result) {
    sum = sum * smoothing + point.loss;
    weight = weight * smoothing + 1;
    point.loss = sum / weight;
  }
  return result;
}

}  // namespace lamina::train
