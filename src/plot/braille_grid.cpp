#include "lamina/plot/braille_grid.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "lamina/base/error.h"

namespace lamina::plot {
namespace {

std::string braille(uint8_t dots) {
  return {'\xe2', static_cast<char>(0xa0 + (dots >> 6U)), static_cast<char>(0x80 + (dots & 63U))};
}

}  // namespace

TerminalStyle terminal_style(size_t curve, bool colours) {
  // Blue, yellow, green, magenta, cyan and red, first bright, then normal.
  constexpr std::array<int, 12> kColours{94, 93, 92, 95, 96, 91, 34, 33, 32, 35, 36, 31};
  constexpr std::array<const char*, 4> kMarkers{"●", "■", "▲", "◆"};
  if (!colours) return {0, kMarkers[curve % kMarkers.size()]};
  return {kColours[curve % kColours.size()], kMarkers[curve / kColours.size() % kMarkers.size()]};
}

void BrailleGrid::set(int x, int y, int curve) {
  if (x < 0 || y < 0 || x >= dots_across() || y >= dots_down()) return;
  // Braille numbers its dots down the left column, then down the right one; the fourth row was added later.
  constexpr std::array<std::array<uint8_t, 2>, 4> kBits{{{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}}};
  Cell& cell = cells_[index(x / 2, y / 4)];
  cell.dots |= kBits[static_cast<size_t>(y % 4)][static_cast<size_t>(x % 2)];
  cell.curve = curve;
}

void BrailleGrid::line(double x0, double y0, double x1, double y1, int curve) {
  const int steps = 1 + static_cast<int>(std::min(std::max(std::abs(x1 - x0), std::abs(y1 - y0)), 1e4));
  for (int i = 0; i <= steps; ++i) {
    const double t = static_cast<double>(i) / steps;
    set(static_cast<int>(std::lround(x0 + (x1 - x0) * t)), static_cast<int>(std::lround(y0 + (y1 - y0) * t)), curve);
  }
}

void BrailleGrid::marker(double x, double y, int curve) {
  const int column = static_cast<int>(std::lround(x)) / 2;
  const int row = static_cast<int>(std::lround(y)) / 4;
  if (x < 0 || y < 0 || column >= columns_ || row >= rows_) return;
  cells_[index(column, row)] = {0, true, curve};
}

std::string BrailleGrid::row(int row, bool colours) const {
  std::string text;
  int colour = 0;
  for (int column = 0; column < columns_; ++column) {
    const Cell& cell = cells_[index(column, row)];
    const TerminalStyle style =
        cell.curve < 0 ? TerminalStyle() : terminal_style(static_cast<size_t>(cell.curve), colours);
    if (style.colour != colour) text += str("\033[", style.colour, "m");
    colour = style.colour;
    text += cell.marker ? style.marker : cell.dots == 0 ? " " : braille(cell.dots);
  }
  if (colour != 0) text += "\033[0m";
  return text;
}

}  // namespace lamina::plot
