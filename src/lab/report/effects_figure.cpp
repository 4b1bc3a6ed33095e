#include <algorithm>
#include <cmath>

#include "lamina/base/error.h"
#include "lamina/lab/report/columns.h"
#include "lamina/lab/report/effects.h"
#include "lamina/lab/report/figures.h"

namespace lamina::lab::report {
namespace {

constexpr double kRow = 30;
constexpr double kLabels = 200;   // left column: names
constexpr double kNumbers = 345;  // right columns: effect with interval, then p and verdict

// Colours are those of the verdicts on the page. Shapes differ, too, for readers who cannot distinguish the colours.
struct MarkStyle {
  plot::Colour colour;
  plot::Marker shape;
};
MarkStyle mark_style(const std::string& mark) {
  if (mark == "better") return {{0, 112, 77}, plot::Marker::circle};
  if (mark == "worse") return {{163, 61, 0}, plot::Marker::square};
  if (mark == "no difference") return {{10, 95, 168}, plot::Marker::diamond};
  return {{110, 110, 110}, plot::Marker::triangle};
}

std::string cut(const std::string& text, size_t columns) {
  if (plot::text_columns(text) <= columns) return text;
  std::string shorter;
  size_t count = 0;
  for (size_t i = 0; i < text.size() && count < columns; ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xC0U) != 0x80U && ++count == columns) break;
    shorter += text[i];
  }
  return shorter + "…";
}

std::string words_of_figure(const Study& study, const std::vector<Effect>& effects) {
  std::string text = study.words()("figure.effects.alternative") + " ";
  for (const Effect& effect : effects) {
    text += str(effect.label, ": ", written_effect(study, effect), ", ", written_mark(study, effect.mark), "; ");
  }
  return text;
}

void draw_effect(plot::Canvas& canvas, const plot::ChartFrame& frame, const Study& study, const Effect& effect,
                 double y) {
  const MarkStyle style = mark_style(effect.mark);
  if (effect.margin) {
    const double left = std::max(frame.at_x(-*effect.margin), frame.x);
    const double right = std::min(frame.at_x(*effect.margin), frame.x + frame.width);
    canvas.box(left, y - kRow / 2, right - left, kRow, plot::kGrid);
  }
  canvas.text(8, y + 4, cut(effect.label, 30), {.size = 12.5});
  if (effect.low && effect.high) {
    const double low = frame.at_x(*effect.low);
    const double high = frame.at_x(*effect.high);
    canvas.line({{low, y}, {high, y}}, {style.colour, 2});
    for (const double end : {low, high}) canvas.line({{end, y - 5}, {end, y + 5}}, {style.colour, 2});
  }
  canvas.dot(frame.at_x(effect.difference), y, 5.5, style.colour, style.shape);
  const double right = kPictureWidth - kNumbers + 12;
  canvas.text(right, y + 4, written_effect(study, effect), {.size = 12});
  canvas.text(kPictureWidth - 8, y + 4,
              str(written_mark(study, effect.mark), effect.p ? ", " + written_p(*effect.p) : ""),
              {.size = 11, .anchor = plot::Anchor::end, .colour = plot::kFaint});
}

}  // namespace

Figure effects_figure(const Study& study) {
  const std::vector<Effect> effects = effects_of(study);
  if (effects.empty()) return {};
  const Words& words = study.words();
  plot::Range range;
  range.add(0);
  for (const Effect& effect : effects) {
    range.add(effect.low.value_or(effect.difference));
    range.add(effect.high.value_or(effect.difference));
    if (effect.margin) range.add(-*effect.margin);
    if (effect.margin) range.add(*effect.margin);
  }
  const double top = 34;
  const double rows = kRow * static_cast<double>(effects.size());
  const double height = top + rows + 54;
  const plot::ChartFrame frame{kLabels, top, kPictureWidth - kLabels - kNumbers, rows, range.axis(5), {}};
  const std::string axis = words("figure.effects.axis", {{"metric", words("measure." + study.quality())},
                                                         {"reference", words("reference." + study.compared_with)}});
  Figure figure{"effects",
                words("figure.effects.title"),
                words("figure.effects.caption",
                      {{"margin", study.margin ? written(*study.margin, Style::percent) : "–"},
                       {"side", words(study.lower_is_better() ? "figure.effects.left" : "figure.effects.right")}}),
                "",
                words_of_figure(study, effects),
                ""};
  plot::SvgCanvas canvas(kPictureWidth, height, {.title = figure.alternative});
  canvas.box(0, 0, kPictureWidth, height, plot::kPaper);
  canvas.text(kPictureWidth - kNumbers + 12, 20, words("figure.effects.numbers"), {.size = 11, .colour = plot::kFaint});
  canvas.text(kPictureWidth - 8, 20, words("figure.effects.verdict"),
              {.size = 11, .anchor = plot::Anchor::end, .colour = plot::kFaint});
  for (size_t i = 0; i < effects.size(); ++i) {
    draw_effect(canvas, frame, study, effects[i], top + kRow * (static_cast<double>(i) + 0.5));
  }
  const double zero = frame.at_x(0);
  canvas.line({{zero, top - 6}, {zero, top + rows}}, {plot::kInk, 1});
  for (const double tick : frame.x_axis.ticks) {
    const double x = frame.at_x(tick);
    canvas.line({{x, top + rows}, {x, top + rows + 5}}, {plot::kFaint});
    canvas.text(x, top + rows + 19, frame.x_axis.label(tick), {.anchor = plot::Anchor::middle, .colour = plot::kFaint});
  }
  canvas.line({{frame.x, top + rows}, {frame.x + frame.width, top + rows}}, {plot::kFaint});
  canvas.text(frame.x + frame.width / 2, top + rows + 42, axis, {.size = 13, .anchor = plot::Anchor::middle});
  figure.svg = canvas.finish();
  return figure;
}

}  // namespace lamina::lab::report
