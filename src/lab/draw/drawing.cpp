#include "lamina/lab/draw/drawing.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "lamina/arch/plan.h"
#include "lamina/base/error.h"
#include "lamina/lab/run/format.h"
#include "lamina/plot/braille_grid.h"
#include "lamina/plot/chart.h"
#include "lamina/plot/svg_canvas.h"

namespace lamina::lab {
namespace {

constexpr size_t kNumberColumns = 16;  ///< with more columns, cells are too narrow for numbers
constexpr double kCaptionLine = 17;

// Dark mode: replaces the light colours, which are SVG attributes, if the reader prefers a dark scheme.
constexpr const char* kDarkDrawing = R"(@media (prefers-color-scheme: dark) {
  [fill="#ffffff"] { fill: #16191d } [fill="#282828"] { fill: #e6e6e6 } [fill="#6e6e6e"] { fill: #a8a8a8 }
  [stroke="#e4e4e4"] { stroke: #33383f } [fill="#e4e4e4"] { fill: #262b31 } })";

struct CellRange {
  double low = 0;
  double high = 0;
};

CellRange range_of(const GridDrawing& drawing) {
  CellRange range{1e300, -1e300};
  for (const auto& row : drawing.cells) {
    for (const auto& cell : row) {
      if (!cell) continue;
      range.low = std::min(range.low, *cell);
      range.high = std::max(range.high, *cell);
    }
  }
  return range;
}

/// A colour between light and dark blue. Text is readable on both.
plot::Colour cell_colour(double share) {
  const auto mix = [&](int light, int dark) {
    return static_cast<unsigned char>(std::lround(light + (dark - light) * share));
  };
  return {mix(198, 0), mix(222, 92), mix(240, 158)};
}

double share_of(double value, const CellRange& range) {
  return range.high > range.low ? (value - range.low) / (range.high - range.low) : 1;
}

std::string number_of(double value, int decimals) {
  const std::string text = fixed(value, decimals);
  return text.starts_with("-") && text.find_first_of("123456789") == std::string::npos ? text.substr(1) : text;
}

/// Indices of the rows and columns, from 0.
void draw_indices(plot::Canvas& canvas, const GridDrawing& drawing, double left, double top, double side) {
  for (size_t i = 0; i < drawing.cells.front().size(); ++i) {
    canvas.text(left + side * (static_cast<double>(i) + 0.5), top - 8, str(i),
                {.size = 11, .anchor = plot::Anchor::middle, .colour = plot::kFaint});
  }
  for (size_t i = 0; i < drawing.cells.size(); ++i) {
    canvas.text(left - 8, top + side * (static_cast<double>(i) + 0.5) + 4, str(i),
                {.size = 11, .anchor = plot::Anchor::end, .colour = plot::kFaint});
  }
}

/// Words of the text in lines that are at most `width` pixels wide at font size 12.
std::vector<std::string> caption_lines(const std::string& text, double width) {
  constexpr double kPixels = 6.8;  // width of an average character
  const auto most = static_cast<size_t>(width / kPixels);
  std::vector<std::string> lines;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const bool fits = !lines.empty() && plot::text_columns(lines.back()) + 1 + plot::text_columns(word) <= most;
    if (fits) {
      lines.back() += " " + word;
    } else {
      lines.push_back(word);
    }
  }
  return lines;
}

void draw_caption(plot::Canvas& canvas, double left, double top, const std::vector<std::string>& lines) {
  for (size_t i = 0; i < lines.size(); ++i) {
    canvas.text(left, top + kCaptionLine * static_cast<double>(i), lines[i], {.size = 12, .colour = plot::kFaint});
  }
}

std::string grid_svg(const GridDrawing& drawing) {
  const size_t columns = drawing.cells.empty() ? 0 : drawing.cells.front().size();
  const bool numbers = columns <= kNumberColumns;
  const double side = numbers ? 44 : std::max(3.0, std::floor(640.0 / static_cast<double>(columns)));
  const double left = 60;
  const double top = numbers ? 80 : 64;
  const double width = std::max(420.0, left + side * static_cast<double>(columns) + 20);
  const double bottom = top + side * static_cast<double>(drawing.cells.size());
  const std::vector<std::string> caption = caption_lines(drawing.caption, width - left - 12);
  const double height = bottom + 32 + kCaptionLine * static_cast<double>(caption.size());
  plot::SvgCanvas canvas(width, height, {.title = drawing.title, .css = kDarkDrawing, .background = plot::kPaper});
  canvas.text(left, 24, drawing.title, {.size = 15, .bold = true});
  canvas.text(left, numbers ? 50 : top - 10, drawing.columns_name + " →", {.size = 12, .colour = plot::kFaint});
  canvas.text(24, top + 14 + 6.5 * static_cast<double>(drawing.rows_name.size()), "← " + drawing.rows_name,
              {.size = 12, .colour = plot::kFaint, .upwards = true});
  if (numbers) draw_indices(canvas, drawing, left, top, side);
  const CellRange range = range_of(drawing);
  for (size_t row = 0; row < drawing.cells.size(); ++row) {
    for (size_t column = 0; column < columns; ++column) {
      const std::optional<double>& cell = drawing.cells[row][column];
      const double x = left + side * static_cast<double>(column);
      const double y = top + side * static_cast<double>(row);
      const double gap = side > 8 ? 1.5 : 0.5;
      const double share = cell ? share_of(*cell, range) : 0;
      canvas.box(x, y, side - gap, side - gap, cell ? cell_colour(share) : plot::kGrid);
      if (!cell || !numbers) continue;
      const plot::Colour ink = share > 0.5 ? plot::Colour{254, 254, 254} : plot::Colour{20, 20, 20};
      canvas.text(x + side / 2 - 1, y + side / 2 + 4, number_of(*cell, drawing.decimals),
                  {.size = 11, .anchor = plot::Anchor::middle, .colour = ink});
    }
  }
  draw_caption(canvas, left, bottom + 28, caption);
  return canvas.finish();
}

struct CurveRanges {
  plot::Range x;
  plot::Range y;
};

CurveRanges ranges_of(const CurvesDrawing& drawing) {
  CurveRanges ranges;
  for (const CurvesDrawing::Curve& curve : drawing.curves) {
    for (const auto& [x, y] : curve.points) {
      ranges.x.add(x);
      ranges.y.add(y);
    }
  }
  return ranges;
}

std::string curves_svg(const CurvesDrawing& drawing) {
  std::vector<std::string> labels;
  for (const CurvesDrawing::Curve& curve : drawing.curves) labels.push_back(curve.label);
  plot::Legend legend = plot::layout_legend(labels, 600);
  for (auto& line : legend.lines) {
    for (auto& [x, label] : line) x += 40;  // below the title
  }
  const double top = 40 + legend.height();
  const std::vector<std::string> caption = caption_lines(drawing.caption, 640);
  plot::SvgCanvas canvas(720, top + 380 + kCaptionLine * static_cast<double>(caption.size()),
                         {.title = drawing.title, .css = kDarkDrawing, .background = plot::kPaper});
  canvas.text(60, 24, drawing.title, {.size = 15, .bold = true});
  plot::draw_legend(canvas, legend, labels, 36);
  const CurveRanges ranges = ranges_of(drawing);
  const plot::ChartFrame frame{
      66, top + 6, 630, 320, plot::linear_axis(ranges.x.low, ranges.x.high, 8), ranges.y.axis(7)};
  plot::draw_frame(canvas, frame, drawing.x_name, drawing.y_name);
  std::vector<plot::Canvas::Points> lines;
  std::vector<plot::CurveStyle> styles;
  for (size_t i = 0; i < drawing.curves.size(); ++i) {
    lines.emplace_back();
    for (const auto& [x, y] : drawing.curves[i].points) lines.back().emplace_back(frame.at_x(x), frame.at_y(y));
    styles.push_back(plot::curve_style(i));
  }
  plot::draw_curves(canvas, lines, styles);
  draw_caption(canvas, 66, top + 386, caption);
  return canvas.finish();
}

double largest_part(const MemoryDrawing& drawing) {
  double largest = 1;
  for (const MemoryDrawing::Level& level : drawing.levels) {
    for (const MemoryDrawing::Part& part : level.parts) largest = std::max(largest, part.bytes);
  }
  return largest;
}

/// Levels from top to bottom. Each part is a bar whose length is its size.
std::string memory_svg(const MemoryDrawing& drawing) {
  constexpr double kRow = 22;
  constexpr double kBars = 200;
  constexpr double kLongest = 400;
  const std::vector<std::string> caption = caption_lines(drawing.caption, 640);
  double height = 44 + kCaptionLine * static_cast<double>(caption.size()) + 12;
  for (const MemoryDrawing::Level& level : drawing.levels) {
    height += 30 + kRow * static_cast<double>(level.parts.size()) + (level.moves.empty() ? 10 : 34);
  }
  plot::SvgCanvas canvas(720, height, {.title = drawing.title, .css = kDarkDrawing, .background = plot::kPaper});
  canvas.text(24, 26, drawing.title, {.size = 15, .bold = true});
  const double largest = largest_part(drawing);
  double y = 44;
  for (const MemoryDrawing::Level& level : drawing.levels) {
    canvas.text(24, y + 16, level.name, {.size = 13, .bold = true});
    y += 26;
    for (const MemoryDrawing::Part& part : level.parts) {
      const double width = std::max(1.5, kLongest * part.bytes / largest);
      canvas.text(kBars - 10, y + 15, part.name, {.size = 12, .anchor = plot::Anchor::end});
      canvas.box(kBars, y + 3, width, kRow - 6, level.avoided ? plot::kGrid : cell_colour(0.8));
      canvas.text(kBars + width + 8, y + 15, arch::short_bytes(part.bytes), {.size = 12, .colour = plot::kFaint});
      y += kRow;
    }
    y += 4;
    if (!level.moves.empty()) canvas.text(kBars, y + 16, "↕ " + level.moves, {.size = 12, .colour = plot::kFaint});
    y += level.moves.empty() ? 10 : 34;
  }
  draw_caption(canvas, 24, y + 8, caption);
  return canvas.finish();
}

std::string memory_text(const MemoryDrawing& drawing) {
  constexpr size_t kNames = 25;
  constexpr double kLongest = 40;
  const double largest = largest_part(drawing);
  std::string text = drawing.title + "\n";
  for (const MemoryDrawing::Level& level : drawing.levels) {
    text += level.name + "\n";
    for (const MemoryDrawing::Part& part : level.parts) {
      const size_t room = kNames - std::min(kNames, plot::text_columns(part.name));
      const auto cells = static_cast<size_t>(std::max(1.0, std::round(kLongest * part.bytes / largest)));
      text += "  " + part.name + std::string(room, ' ');
      for (size_t i = 0; i < cells; ++i) text += level.avoided ? "░" : "█";
      text += " " + arch::short_bytes(part.bytes) + "\n";
    }
    if (!level.moves.empty()) text += "  ↕ " + level.moves + "\n";
  }
  return text + drawing.caption + "\n";
}

/// Numbers in columns of equal width. A dot is a masked cell.
std::string numbers_text(const GridDrawing& drawing) {
  size_t width = 1;
  for (const auto& row : drawing.cells) {
    for (const auto& cell : row) {
      if (cell) width = std::max(width, number_of(*cell, drawing.decimals).size());
    }
  }
  std::string text;
  for (const auto& row : drawing.cells) {
    for (const auto& cell : row) {
      const std::string number = cell ? number_of(*cell, drawing.decimals) : "·";
      text += std::string(width + 1 - plot::text_columns(number), ' ') + number;
    }
    text += "\n";
  }
  return text;
}

/// One block character per cell, darker for larger values.
std::string blocks_text(const GridDrawing& drawing) {
  const CellRange range = range_of(drawing);
  constexpr const char* kShades[] = {"░", "▒", "▓", "█"};
  std::string text;
  for (const auto& row : drawing.cells) {
    for (const auto& cell : row) {
      text += cell ? kShades[std::min<size_t>(3, static_cast<size_t>(share_of(*cell, range) * 4))] : "·";
    }
    text += "\n";
  }
  return text;
}

std::string grid_text(const GridDrawing& drawing) {
  const bool numbers = !drawing.cells.empty() && drawing.cells.front().size() <= kNumberColumns;
  return str(drawing.title, "\nrows: ", drawing.rows_name, ", columns: ", drawing.columns_name, "\n",
             numbers ? numbers_text(drawing) : blocks_text(drawing), drawing.caption, "\n");
}

std::string curves_text(const CurvesDrawing& drawing, bool colours) {
  constexpr int kColumns = 72;
  constexpr int kRows = 18;
  const CurveRanges ranges = ranges_of(drawing);
  plot::BrailleGrid grid(kColumns, kRows);
  const auto place = [](double value, const plot::Range& range, int dots) {
    return range.high > range.low ? (value - range.low) / (range.high - range.low) * (dots - 1) : 0.0;
  };
  std::string legend;
  for (size_t i = 0; i < drawing.curves.size(); ++i) {
    const auto& points = drawing.curves[i].points;
    const int curve = static_cast<int>(i);
    const auto x_of = [&](size_t p) { return place(points[p].first, ranges.x, grid.dots_across()); };
    const auto y_of = [&](size_t p) {
      return grid.dots_down() - 1 - place(points[p].second, ranges.y, grid.dots_down());
    };
    for (size_t p = 1; p < points.size(); ++p) grid.line(x_of(p - 1), y_of(p - 1), x_of(p), y_of(p), curve);
    if (!points.empty()) grid.marker(x_of(points.size() / 2), y_of(points.size() / 2), curve);
    const plot::TerminalStyle style = plot::terminal_style(i, colours);
    legend += str(legend.empty() ? "" : "   ", style.marker, " ", drawing.curves[i].label);
  }
  std::vector<std::string> ticks(kRows);
  const plot::Axis axis = plot::linear_axis(ranges.y.low, ranges.y.high, kRows / 3);
  for (const double tick : axis.ticks) {
    const auto row = static_cast<size_t>(grid.dots_down() - 1 - std::lround(place(tick, ranges.y, grid.dots_down())));
    ticks[std::min<size_t>(row / 4, kRows - 1)] = axis.label(tick);
  }
  std::string text = drawing.title + "\n" + legend + "\n";
  for (int row = 0; row < kRows; ++row) {
    text += printed("%9s ", ticks[static_cast<size_t>(row)].c_str()) + grid.row(row, colours) + "\n";
  }
  text += printed("%10s%-9.4g%*s\n", "", ranges.x.low, kColumns - 9, printed("%.4g", ranges.x.high).c_str());
  return text + str("x: ", drawing.x_name, ", y: ", drawing.y_name, "\n") +
         (drawing.caption.empty() ? "" : drawing.caption + "\n");
}

}  // namespace

std::string drawing_svg(const Drawing& drawing) {
  if (const auto* grid = std::get_if<GridDrawing>(&drawing)) return grid_svg(*grid);
  if (const auto* memory = std::get_if<MemoryDrawing>(&drawing)) return memory_svg(*memory);
  return curves_svg(std::get<CurvesDrawing>(drawing));
}

std::string drawing_text(const Drawing& drawing, bool colours) {
  if (const auto* grid = std::get_if<GridDrawing>(&drawing)) return grid_text(*grid);
  if (const auto* memory = std::get_if<MemoryDrawing>(&drawing)) return memory_text(*memory);
  return curves_text(std::get<CurvesDrawing>(drawing), colours);
}

}  // namespace lamina::lab
