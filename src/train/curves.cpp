#include "lamina/train/curves.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "lamina/base/error.h"
#include "lamina/base/files.h"
#include "lamina/train/canvas.h"
#include "lamina/train/curve_axes.h"
#include "lamina/train/curve_drawing.h"

namespace lamina::train {
namespace {

// Told apart by people who see colours differently too (Okabe & Ito 2008), dark enough for a light background.
constexpr std::array<Colour, 7> kColours{
    {{0, 114, 178}, {213, 94, 0}, {0, 158, 115}, {204, 121, 167}, {230, 159, 0}, {86, 180, 233}, {90, 90, 90}}};
constexpr Colour kInk{40, 40, 40};
constexpr Colour kFaint{110, 110, 110};
constexpr Colour kGrid{228, 228, 228};
constexpr Colour kPaper{255, 255, 255};
constexpr double kLeft = 64;
constexpr double kRight = 20;
constexpr double kBottom = 52;

/// The frame that curves lie in, in pixels, and what its sides mean.
struct Frame {
  double x;
  double y;
  double width;
  double height;
  CurveAxes axes;

  double at_x(double value) const { return x + width * axes.x.share(value); }
  double at_y(double value) const { return y + height * (1 - axes.y.share(value)); }
};

/// Points as pixels. Where several fall into one column of pixels the least and the greatest stand for them, in order.
Canvas::Points pixels(const std::vector<RunPoint>& points, const Frame& frame) {
  Canvas::Points result;
  size_t begin = 0;
  while (begin < points.size()) {
    const double column = std::floor(frame.at_x(frame.axes.of(points[begin])));
    size_t end = begin;
    size_t least = begin;
    size_t greatest = begin;
    for (; end < points.size() && std::floor(frame.at_x(frame.axes.of(points[end]))) == column; ++end) {
      if (points[end].loss < points[least].loss) least = end;
      if (points[end].loss > points[greatest].loss) greatest = end;
    }
    for (const size_t i : {std::min(least, greatest), std::max(least, greatest)}) {
      result.emplace_back(frame.at_x(frame.axes.of(points[i])), frame.at_y(points[i].loss));
      if (least == greatest) break;
    }
    begin = end;
  }
  return result;
}

void draw_axes(Canvas& canvas, const Frame& frame) {
  const double bottom = frame.y + frame.height;
  for (const double tick : frame.axes.y.ticks) {
    const double y = frame.at_y(tick);
    canvas.line({{frame.x, y}, {frame.x + frame.width, y}}, {kGrid});
    canvas.text(frame.x - 8, y + 4, frame.axes.y.label(tick), 12, Anchor::end, kFaint, false, false);
  }
  for (const double tick : frame.axes.x.ticks) {
    const double x = frame.at_x(tick);
    canvas.line({{x, bottom}, {x, bottom + 5}}, {kFaint});
    canvas.text(x, bottom + 19, frame.axes.x.label(tick), 12, Anchor::middle, kFaint, false, false);
  }
  canvas.line({{frame.x, bottom}, {frame.x + frame.width, bottom}}, {kFaint});
  canvas.text(frame.x + frame.width / 2, bottom + 40, frame.axes.x_name, 13, Anchor::middle, kInk, false, false);
  canvas.text(18, frame.y + frame.height / 2, "loss", 13, Anchor::middle, kInk, false, true);
}

void draw_run(Canvas& canvas, const Frame& frame, const RunLog& run, Colour colour, double smoothing) {
  const Canvas::Points raw = pixels(run.train, frame);
  if (smoothing > 0) canvas.line(raw, {colour, 1, 0.25});
  canvas.line(smoothing > 0 ? pixels(smoothed(run.train, smoothing), frame) : raw, {colour, 1.6});
  Canvas::Points validation;
  for (const RunPoint& point : run.validation) {
    validation.emplace_back(frame.at_x(frame.axes.of(point)), frame.at_y(point.loss));
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
    const Colour colour = kColours[i % kColours.size()];
    canvas.line({{left + 8, y}, {left + 36, y}}, {colour, 2.2});
    if (!runs[i].validation.empty()) canvas.dot(left + 22, y, 3.5, colour);
    canvas.text(left + 44, y + 4, lines[i], 12, Anchor::start, kInk, false, false);
  }
}

}  // namespace

void draw_curves(Canvas& canvas, const std::vector<RunLog>& runs, const CurveOptions& options) {
  const double top = options.title.empty() ? 20 : 46;
  const Frame frame{kLeft, top, kCurvesWidth - kLeft - kRight, kCurvesHeight - top - kBottom,
                    curve_axes(runs, options.x, 9, 11)};
  canvas.box(0, 0, kCurvesWidth, kCurvesHeight, kPaper, 1);
  if (!options.title.empty()) canvas.text(kLeft, 28, options.title, 16, Anchor::start, kInk, true, false);
  draw_axes(canvas, frame);
  canvas.clip(frame.x, frame.y, frame.width, frame.height);
  for (size_t i = 0; i < runs.size(); ++i) {
    draw_run(canvas, frame, runs[i], kColours[i % kColours.size()], options.smoothing);
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
