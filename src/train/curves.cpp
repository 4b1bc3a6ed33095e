#include "lamina/train/curves.h"

#include <algorithm>
#include <cmath>

#include "lamina/base/error.h"
#include "lamina/base/files.h"
#include "lamina/train/chart_frame.h"
#include "lamina/train/curve_drawing.h"

namespace lamina::train {
namespace {

constexpr double kLeft = 64;
constexpr double kRight = 20;
constexpr double kBottom = 52;

/// Points as pixels. Where several fall into one column of pixels the least and the greatest stand for them, in order.
Canvas::Points pixels(const std::vector<RunPoint>& points, const ChartFrame& frame, const CurveAxes& axes) {
  const auto at_x = [&](const RunPoint& point) { return frame.at_x(axes.of(point)); };
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

void draw_run(Canvas& canvas, const ChartFrame& frame, const CurveAxes& axes, const RunLog& run, Colour colour,
              double smoothing) {
  const Canvas::Points raw = pixels(run.train, frame, axes);
  if (smoothing > 0) canvas.line(raw, {colour, 1, 0.25});
  canvas.line(smoothing > 0 ? pixels(smoothed(run.train, smoothing), frame, axes) : raw, {colour, 1.6});
  Canvas::Points validation;
  for (const RunPoint& point : run.validation) {
    validation.emplace_back(frame.at_x(axes.of(point)), frame.at_y(point.loss));
  }
  canvas.line(validation, {colour, 1.2, 0.9, true});
  // Points so close that they would touch say no more than their line.
  const size_t every = 1 + validation.size() * 9 / static_cast<size_t>(frame.width);
  for (size_t i = 0; i < validation.size(); ++i) {
    const bool last = i + 1 == validation.size();
    if (i % every == 0 || last) canvas.dot(validation[i].first, validation[i].second, 3.5, colour);
  }
}

void draw_legend(Canvas& canvas, const std::vector<RunLog>& runs, double right, double top) {
  std::vector<std::string> lines;
  size_t longest = 0;
  for (const RunLog& run : runs) {
    lines.push_back(curve_summary(run));
    longest = std::max(longest, text_columns(lines.back()));
  }
  const double width = 52 + 6.6 * static_cast<double>(longest);
  const double left = right - width - 8;
  canvas.box(left, top + 6, width, 12 + 19 * static_cast<double>(lines.size()), kPaper, 0.85);
  for (size_t i = 0; i < lines.size(); ++i) {
    const double y = top + 22 + 19 * static_cast<double>(i);
    const Colour colour = kChartColours[i % kChartColours.size()];
    canvas.line({{left + 8, y}, {left + 36, y}}, {colour, 2.2});
    if (!runs[i].validation.empty()) canvas.dot(left + 22, y, 3.5, colour);
    canvas.text(left + 44, y + 4, lines[i], 12, Anchor::start, kInk, false, false);
  }
}

}  // namespace

void draw_curves(Canvas& canvas, const std::vector<RunLog>& runs, const CurveOptions& options) {
  const double top = options.title.empty() ? 20 : 46;
  const CurveAxes axes = curve_axes(runs, options.x, 9, 11);
  const ChartFrame frame{kLeft, top, kCurvesWidth - kLeft - kRight, kCurvesHeight - top - kBottom, axes.x, axes.y};
  canvas.box(0, 0, kCurvesWidth, kCurvesHeight, kPaper, 1);
  if (!options.title.empty()) canvas.text(kLeft, 28, options.title, 16, Anchor::start, kInk, true, false);
  draw_frame(canvas, frame, axes.x_name, "loss");
  canvas.clip(frame.x, frame.y, frame.width, frame.height);
  for (size_t i = 0; i < runs.size(); ++i) {
    draw_run(canvas, frame, axes, runs[i], kChartColours[i % kChartColours.size()], options.smoothing);
  }
  canvas.unclip();
  draw_legend(canvas, runs, frame.x + frame.width, frame.y);
}

std::string curves_svg(const std::vector<RunLog>& runs, const CurveOptions& options) {
  SvgCanvas canvas(kCurvesWidth, kCurvesHeight);
  draw_curves(canvas, runs, options);
  return canvas.finish();
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
