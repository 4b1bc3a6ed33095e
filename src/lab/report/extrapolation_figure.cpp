#include <algorithm>

#include "lamina/base/error.h"
#include "lamina/lab/report/columns.h"
#include "lamina/lab/report/figures.h"
#include "lamina/lab/report/series.h"

namespace lamina::lab::report {
namespace {

constexpr double kStretchPanelHeight = 360;

std::vector<std::string> readings_of(const Stretch& stretch) {
  std::vector<std::string> readings;
  for (const StretchRow& row : stretch.rows) {
    if (std::find(readings.begin(), readings.end(), row.reading) == readings.end()) readings.push_back(row.reading);
  }
  return readings;
}

plot::Axis length_axis(const Stretch& stretch) {
  plot::Range range;
  for (const double length : stretch.lengths) range.add(length);
  range.add(stretch.trained_length);
  plot::Axis axis = plot::log_axis(range.low / 1.1, range.high * 1.1, 99);
  axis.ticks = stretch.lengths;
  axis.tick_step = 1;  // integer labels
  return axis;
}

void draw_reading(plot::Canvas& canvas, const plot::ChartFrame& frame, const Study& study, const std::string& reading,
                  const std::vector<std::string>& labels) {
  const Stretch& stretch = *study.stretch;
  plot::draw_frame(canvas, frame,
                   str(study.words().or_else("reading." + reading, reading), ": ", study.words()("chart.context")),
                   study.words()("chart.perplexity"));
  const double trained = frame.at_x(stretch.trained_length);
  canvas.line({{trained, frame.y}, {trained, frame.y + frame.height}}, {plot::kFaint, 1, 1, {5, 3}, 0});
  canvas.text(trained + 4, frame.y + 10, study.words()("chart.trained"), {.size = 11, .colour = plot::kFaint});
  std::vector<plot::Canvas::Points> lines;
  std::vector<plot::CurveStyle> styles;
  for (const StretchRow& row : stretch.rows) {
    if (row.reading != reading) continue;
    styles.push_back(plot::style_of(labels, study.label_of(row.variant)));
    plot::Canvas::Points& line = lines.emplace_back();
    for (size_t i = 0; i < stretch.lengths.size(); ++i) {
      if (const Number value = row.perplexity[i]; value && *value > 0) {
        line.emplace_back(frame.at_x(stretch.lengths[i]), frame.at_y(*value));
      }
    }
  }
  plot::draw_curves(canvas, lines, styles);
}

/// One sentence per row that cannot read all lengths: "Learned cannot: learned positions end at 256."
std::string those_that_cannot(const Study& study) {
  std::vector<std::string> sentences;
  for (const StretchRow& row : study.stretch->rows) {
    if (row.cannot.empty()) continue;
    const std::string sentence =
        " " + study.words()("figure.extrapolation.cannot",
                            {{"variant", study.label_of(row.variant)}, {"reason", row.cannot}});
    if (std::find(sentences.begin(), sentences.end(), sentence) == sentences.end()) sentences.push_back(sentence);
  }
  std::string text;
  for (const std::string& sentence : sentences) text += sentence;
  return text;
}

}  // namespace

Figure extrapolation_figure(const Study& study) {
  if (!study.stretch || study.stretch->rows.empty()) return {};
  plot::Range range;
  std::vector<std::string> shown;
  for (const StretchRow& row : study.stretch->rows) {
    for (const Number value : row.perplexity) {
      if (value && *value > 0) range.add(*value);
    }
    const std::string label = study.label_of(row.variant);
    if (std::find(shown.begin(), shown.end(), label) == shown.end()) shown.push_back(label);
  }
  if (range.empty()) return {};
  const std::vector<std::string> labels = labels_of(study);
  const std::vector<std::string> readings = readings_of(*study.stretch);
  const plot::Legend legend = plot::layout_legend(shown, kPictureWidth - 20);
  const double height = legend.height() + kStretchPanelHeight;
  const double width = kPictureWidth / static_cast<double>(readings.size());
  Figure figure{"extrapolation",
                study.words()("figure.extrapolation.title"),
                study.words()("figure.extrapolation.caption",
                              {{"trained", written(study.stretch->trained_length, Style::count)}}) +
                    those_that_cannot(study),
                "",
                study.words()("figure.extrapolation.alternative") + those_that_cannot(study),
                ""};
  plot::SvgCanvas canvas(kPictureWidth, height, {.title = figure.alternative});
  canvas.box(0, 0, kPictureWidth, height, plot::kPaper);
  plot::draw_legend(canvas, legend, labels, 6);
  for (size_t i = 0; i < readings.size(); ++i) {
    const plot::ChartFrame frame{width * static_cast<double>(i) + 72,
                                 legend.height() + 12,
                                 width - 96,
                                 kStretchPanelHeight - 64,
                                 length_axis(*study.stretch),
                                 plot::log_axis(range.low / 1.1, range.high * 1.1, 9)};
    draw_reading(canvas, frame, study, readings[i], labels);
  }
  figure.svg = canvas.finish();
  return figure;
}

}  // namespace lamina::lab::report
