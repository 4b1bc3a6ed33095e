// Loss curves for a terminal.
#include <algorithm>
#include <cmath>

#include "lamina/base/error.h"
#include "lamina/plot/braille_grid.h"
#include "lamina/plot/canvas.h"
#include "lamina/train/curve_axes.h"

namespace lamina::train {
namespace {

void draw(plot::BrailleGrid& grid, const CurveAxes& axes, const RunLog& run, int number, double smoothing) {
  const auto x = [&](const RunPoint& p) { return axes.x.share(axes.x_of(p)) * (grid.dots_across() - 1); };
  const auto y = [&](const RunPoint& p) { return (1 - axes.y.share(p.loss)) * (grid.dots_down() - 1); };
  const std::vector<RunPoint> train = smoothing > 0 ? smoothed(run.train, smoothing) : run.train;
  for (size_t i = 0; i < train.size(); ++i) {
    const RunPoint& from = train[i == 0 ? 0 : i - 1];
    grid.line(x(from), y(from), x(train[i]), y(train[i]), number);
  }
  for (const RunPoint& point : run.validation) grid.marker(x(point), y(point), number);
}

std::string padded(const std::string& text, size_t columns) {
  return std::string(columns - std::min(columns, plot::text_columns(text)), ' ') + text;
}

/// The line of tick labels below the x axis, each centred under its tick. Skips labels that would touch the previous
/// one.
std::string tick_line(const CurveAxes& axes, size_t left, int columns) {
  std::string line(left, ' ');
  for (const double tick : axes.x.ticks) {
    const std::string label = axes.x.label(tick);
    const auto centre = left + static_cast<size_t>(std::lround(axes.x.share(tick) * (columns - 1)));
    const size_t begin = centre - std::min(centre, label.size() / 2);
    if (begin < line.size() + (line.size() > left ? 2 : 0) && line.size() > left) continue;
    if (begin + label.size() > left + static_cast<size_t>(columns) + 2) continue;
    line.resize(std::max(begin, line.size()), ' ');
    line += label;
  }
  return line;
}

}  // namespace

std::string curves_text(const std::vector<RunLog>& runs, const CurveOptions& options) {
  const int rows = std::max(options.rows, 4);
  const CurveAxes axes = curve_axes(runs, options.x, std::max(2, options.columns / 14), std::max(2, rows / 3));
  // Label of each row that contains a tick.
  std::vector<std::string> labels(static_cast<size_t>(rows));
  size_t left = 4;
  for (const double tick : axes.y.ticks) {
    const double row = (1 - axes.y.share(tick)) * (rows * 4 - 1) / 4;
    std::string& label = labels[static_cast<size_t>(std::clamp(static_cast<int>(row), 0, rows - 1))];
    label = axes.y.label(tick);
    left = std::max(left, label.size());
  }
  const int columns = std::max(options.columns - static_cast<int>(left) - 3, 10);
  plot::BrailleGrid grid(columns, rows);
  const std::vector<CurveGroup> groups = curve_groups(runs);
  for (size_t i = 0; i < groups.size(); ++i) {
    for (const size_t run : groups[i].runs) draw(grid, axes, runs[run], static_cast<int>(i), options.smoothing);
  }

  std::string text;
  if (!options.title.empty()) text += options.title + "\n";
  for (int row = 0; row < rows; ++row) {
    const std::string& label = labels[static_cast<size_t>(row)];
    text += str(padded(label, left), label.empty() ? " │" : " ┤", grid.row(row, options.colours), "\n");
  }
  std::string base;
  for (int i = 0; i < columns; ++i) base += "─";
  text += str(std::string(left, ' '), " └", base, "\n", tick_line(axes, left + 2, columns), "  ", axes.x_name, "\n");
  for (size_t i = 0; i < groups.size(); ++i) {
    const plot::TerminalStyle style = plot::terminal_style(i, options.colours);
    const bool validation = std::any_of(groups[i].runs.begin(), groups[i].runs.end(),
                                        [&](size_t run) { return !runs[run].validation.empty(); });
    const std::string mark = str("━", validation ? style.marker : "━", "━");
    const std::string shown = style.colour != 0 ? str("\033[", style.colour, "m", mark, "\033[0m") : mark;
    text += str(std::string(left + 2, ' '), shown, " ", curve_summary(groups[i], runs), "\n");
  }
  return text;
}

}  // namespace lamina::train
