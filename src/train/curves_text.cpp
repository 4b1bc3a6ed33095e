// Curves for a terminal. Each character is a Braille cell of 2 × 4 dots (U+2800 … U+28FF).
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "lamina/base/error.h"
#include "lamina/train/curve_axes.h"

namespace lamina::train {
namespace {

// ANSI foreground colours: blue, yellow, green, magenta, cyan and red, first bright, then normal.
constexpr std::array<int, 12> kColours{94, 93, 92, 95, 96, 91, 34, 33, 32, 35, 36, 31};
constexpr std::array<const char*, 4> kMarks{"●", "■", "▲", "◆"};

/// Style of a group. The marker changes when the colours repeat, or with every group if colours are off.
struct Look {
  int colour;  ///< 0: none
  const char* mark;
};
Look look_of(size_t group, bool colours) {
  if (!colours) return {0, kMarks[group % kMarks.size()]};
  return {kColours[group % kColours.size()], kMarks[group / kColours.size() % kMarks.size()]};
}

struct Cell {
  uint8_t dots = 0;
  bool point = false;  ///< the cell shows a validation point
  int group = -1;      ///< group that was drawn here last
};

std::string braille(uint8_t dots) {
  return {'\xe2', static_cast<char>(0xa0 + (dots >> 6U)), static_cast<char>(0x80 + (dots & 63U))};
}

class DotGrid {
 public:
  DotGrid(int columns, int rows) : columns_(columns), rows_(rows), cells_(static_cast<size_t>(columns * rows)) {}

  int dots_across() const { return columns_ * 2; }
  int dots_down() const { return rows_ * 4; }
  void set(int x, int y, int group) {
    if (x < 0 || y < 0 || x >= dots_across() || y >= dots_down()) return;
    // Braille numbers its dots down the left column, down the right column, then the fourth row.
    constexpr std::array<std::array<uint8_t, 2>, 4> kBits{{{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}}};
    Cell& cell = at(x / 2, y / 4);
    cell.dots |= kBits[static_cast<size_t>(y % 4)][static_cast<size_t>(x % 2)];
    cell.group = group;
  }
  void line(double x0, double y0, double x1, double y1, int group) {
    const int steps = 1 + static_cast<int>(std::min(std::max(std::abs(x1 - x0), std::abs(y1 - y0)), 1e4));
    for (int i = 0; i <= steps; ++i) {
      const double t = static_cast<double>(i) / steps;
      set(static_cast<int>(std::lround(x0 + (x1 - x0) * t)), static_cast<int>(std::lround(y0 + (y1 - y0) * t)), group);
    }
  }
  void point(double x, double y, int group) {
    const int column = static_cast<int>(std::lround(x)) / 2;
    const int row = static_cast<int>(std::lround(y)) / 4;
    if (x < 0 || y < 0 || column >= columns_ || row >= rows_) return;
    at(column, row) = {0, true, group};
  }
  std::string row(int row, bool colours) {
    std::string text;
    int colour = 0;
    for (int column = 0; column < columns_; ++column) {
      const Cell& cell = at(column, row);
      const Look look = cell.group < 0 ? Look{0, ""} : look_of(static_cast<size_t>(cell.group), colours);
      if (look.colour != colour) text += str("\033[", look.colour, "m");
      colour = look.colour;
      text += cell.point ? look.mark : cell.dots == 0 ? " " : braille(cell.dots);
    }
    if (colour != 0) text += "\033[0m";
    return text;
  }

 private:
  Cell& at(int column, int row) {
    return cells_[static_cast<size_t>(row) * static_cast<size_t>(columns_) + static_cast<size_t>(column)];
  }

  int columns_;
  int rows_;
  std::vector<Cell> cells_;
};

void draw(DotGrid& grid, const CurveAxes& axes, const RunLog& run, int number, double smoothing) {
  const auto x = [&](const RunPoint& p) { return axes.x.share(axes.of(p)) * (grid.dots_across() - 1); };
  const auto y = [&](const RunPoint& p) { return (1 - axes.y.share(p.loss)) * (grid.dots_down() - 1); };
  const std::vector<RunPoint> train = smoothing > 0 ? smoothed(run.train, smoothing) : run.train;
  for (size_t i = 0; i < train.size(); ++i) {
    const RunPoint& from = train[i == 0 ? 0 : i - 1];
    grid.line(x(from), y(from), x(train[i]), y(train[i]), number);
  }
  for (const RunPoint& point : run.validation) grid.point(x(point), y(point), number);
}

std::string padded(const std::string& text, size_t columns) {
  return std::string(columns - std::min(columns, text_columns(text)), ' ') + text;
}

/// Tick labels of the x axis, each centred under its tick. A label that would touch the previous one is skipped.
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
  DotGrid grid(columns, rows);
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
    const Look look = look_of(i, options.colours);
    const bool validation = std::any_of(groups[i].runs.begin(), groups[i].runs.end(),
                                        [&](size_t run) { return !runs[run].validation.empty(); });
    const std::string mark = str("━", validation ? look.mark : "━", "━");
    const std::string shown = look.colour != 0 ? str("\033[", look.colour, "m", mark, "\033[0m") : mark;
    text += str(std::string(left + 2, ' '), shown, " ", curve_summary(groups[i], runs), "\n");
  }
  return text;
}

}  // namespace lamina::train
