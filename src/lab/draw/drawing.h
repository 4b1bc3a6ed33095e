#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace lamina::lab {

/// A matrix as coloured cells. Row and column 0 are at the upper left; an empty cell is masked.
struct GridDrawing {
  std::string title;
  std::string rows_name;
  std::string columns_name;
  std::vector<std::vector<std::optional<double>>> cells;
  int decimals = 0;  ///< of the numbers written into the cells
  std::string caption;
};

/// Curves over one x axis.
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

using Drawing = std::variant<GridDrawing, CurvesDrawing>;

/// An SVG file with light and dark colours.
std::string drawing_svg(const Drawing& drawing);
/// For a terminal: numbers if at most 16 columns fit, otherwise one character per cell; curves as Braille dots.
std::string drawing_text(const Drawing& drawing, bool colours);

}  // namespace lamina::lab
