#include <cmath>

#include "lamina/base/error.h"
#include "lamina/lab/report/columns.h"
#include "lamina/lab/report/effects.h"
#include "lamina/lab/report/figures.h"
#include "lamina/lab/report/series.h"

namespace lamina::lab::report {
namespace {

constexpr double kScalingHeight = 420;

plot::ChartFrame scaling_frame(const Scaling& scaling, double top) {
  plot::Range sizes;
  plot::Range losses;
  for (const ScalingGroup& group : scaling.groups) {
    for (const ScalingPoint& point : group.points) {
      sizes.add(point.size);
      losses.add(point.loss);
    }
    for (const double loss : group.curve_loss) losses.add(loss);
  }
  return {72,
          top,
          kPictureWidth - 92,
          kScalingHeight - top - 52,
          plot::log_axis(sizes.low / 1.1, sizes.high * 1.1, 8),
          losses.axis(7)};
}

void draw_group(plot::Canvas& canvas, const plot::ChartFrame& frame, const ScalingGroup& group,
                const plot::CurveStyle& style) {
  plot::Canvas::Points line;
  plot::Canvas::Points edge;
  for (size_t i = 0; i < group.curve_size.size(); ++i) {
    line.emplace_back(frame.at_x(group.curve_size[i]), frame.at_y(group.curve_loss[i]));
    if (!group.curve_high.empty()) edge.emplace_back(line.back().first, frame.at_y(group.curve_high[i]));
  }
  for (size_t i = group.curve_low.size(); i-- > 0;) edge.emplace_back(line[i].first, frame.at_y(group.curve_low[i]));
  if (!edge.empty()) canvas.area(edge, style.colour, 0.15);
  if (!line.empty()) canvas.line(line, style.stroke(2));
  for (const ScalingPoint& point : group.points) {
    canvas.dot(frame.at_x(point.size), frame.at_y(point.loss), 3.5, style.colour, style.marker);
  }
}

}  // namespace

Figure scaling_figure(const Study& study) {
  if (!study.scaling) return {};
  const Scaling& scaling = *study.scaling;
  std::vector<std::string> names;
  size_t points = 0;
  for (const ScalingGroup& group : scaling.groups) {
    names.push_back(group.name);
    points += group.points.size();
  }
  if (points == 0) return {};
  const Words& words = study.words();
  std::string laws;
  for (const ScalingGroup& group : scaling.groups) {
    laws += " " + (group.fitted ? words("scaling.law", {{"group", group.name},
                                                        {"law", written_law(scaling, group)},
                                                        {"exponent", written_exponent(study, group)}})
                                : words("scaling.none", {{"group", group.name}}));
    if (group.fitted && !group.determined) laws += " " + words("scaling.undetermined", {{"group", group.name}});
  }
  const std::string axis = words(scaling.against == "compute" ? "scaling.compute" : "scaling.parameters");
  Figure figure{"scaling",
                words("figure.scaling.title"),
                words("figure.scaling.caption") + laws,
                "",
                words("figure.scaling.alternative") + laws,
                ""};
  const std::vector<std::string> labels = labels_of(study);
  const plot::Legend legend = plot::layout_legend(names, kPictureWidth - 20);
  const plot::ChartFrame frame = scaling_frame(scaling, 12 + legend.height());
  plot::SvgCanvas canvas(kPictureWidth, kScalingHeight, {.title = figure.alternative});
  canvas.box(0, 0, kPictureWidth, kScalingHeight, plot::kPaper);
  plot::draw_legend(canvas, legend, labels, 6);
  plot::draw_frame(canvas, frame, axis, words("measure.best_loss"));
  canvas.clip(frame.x - 4, frame.y - 4, frame.width + 8, frame.height + 4);
  for (const ScalingGroup& group : scaling.groups) {
    draw_group(canvas, frame, group, plot::style_of(labels, group.name));
  }
  canvas.unclip();
  figure.svg = canvas.finish();
  return figure;
}

}  // namespace lamina::lab::report
