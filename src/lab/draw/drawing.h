#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace lamina::lab {

/// A matrix drawn as coloured cells. Row and column 0 are at the upper left. An empty cell is masked.
struct GridDrawing {
  std::string title;
  std::string rows_name;
  std::string columns_name;
  std::vector<std::vector<std::optional<double>>> cells;
  int decimals = 0;  ///< decimals of the numbers in the cells
  std::string caption;
};

/// Curves over a common x axis.
struct CurvesDrawing {
  struct Curve {
    std::string label;
    std::vector<std::pair<double, double>> points;
  };
  std::string title;
  std::string x_name;
  std::string y_name;
  std::vector<Curve> curves;
  std::string caption;
};

/// What lies in each memory of a machine, with its size, and what moves between them.
struct MemoryDrawing {
  struct Part {
    std::string name;
    double bytes = 0;
  };
  struct Level {
    std::string name;
    std::vector<Part> parts;
    bool avoided = false;  ///< drawn in grey: what another method would store
    std::string moves;     ///< what moves between this level and the next
  };
  std::string title;
  std::vector<Level> levels;
  std::string caption;
};

using Drawing = std::variant<GridDrawing, CurvesDrawing, MemoryDrawing>;

/// The drawing as an SVG file, with colours for light and dark mode.
std::string drawing_svg(const Drawing& drawing);
/// The drawing for a terminal. A matrix has numbers if it has at most 16 columns, otherwise one character per cell.
/// Curves are drawn with Braille dots.
std::string drawing_text(const Drawing& drawing, bool colours);

}  // namespace lamina::lab
