#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lamina::plot {

/// Style of a curve in a terminal. The marker changes when the colours repeat or, without colours, with every curve.
struct TerminalStyle {
  int colour = 0;  ///< ANSI foreground colour; 0: none
  const char* marker = "";
};
TerminalStyle terminal_style(size_t curve, bool colours);

/// A drawing surface in a terminal. Each character is a Braille cell of 2 × 4 dots (U+2800 … U+28FF).
class BrailleGrid {
 public:
  BrailleGrid(int columns, int rows) : columns_(columns), rows_(rows), cells_(static_cast<size_t>(columns * rows)) {}

  int dots_across() const { return columns_ * 2; }
  int dots_down() const { return rows_ * 4; }
  /// Draws a line of dots. Coordinates are dots, from the upper left corner.
  void line(double x0, double y0, double x1, double y1, int curve);
  /// Replaces the cell at this dot by the curve's marker.
  void marker(double x, double y, int curve);
  /// The text of a row, with ANSI colours if `colours`.
  std::string row(int row, bool colours) const;

 private:
  struct Cell {
    uint8_t dots = 0;
    bool marker = false;
    int curve = -1;  ///< the curve that was drawn here last
  };
  void set(int x, int y, int curve);
  size_t index(int column, int row) const {
    return static_cast<size_t>(row) * static_cast<size_t>(columns_) + static_cast<size_t>(column);
  }

  int columns_;
  int rows_;
  std::vector<Cell> cells_;
};

}  // namespace lamina::plot
