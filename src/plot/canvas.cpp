#include "lamina/plot/canvas.h"

#include <algorithm>

namespace lamina::plot {

Canvas::Points marker_corners(Marker marker, double x, double y, double radius) {
  switch (marker) {
    case Marker::circle: break;
    case Marker::square: {
      const double half = 0.89 * radius;
      return {{x - half, y - half}, {x + half, y - half}, {x + half, y + half}, {x - half, y + half}};
    }
    case Marker::triangle: {
      const double half = 1.35 * radius;  // half of a side
      return {{x, y - 1.56 * radius}, {x + half, y + 0.78 * radius}, {x - half, y + 0.78 * radius}};
    }
    case Marker::diamond: {
      const double half = 1.25 * radius;
      return {{x, y - half}, {x + half, y}, {x, y + half}, {x - half, y}};
    }
  }
  return {};
}

size_t text_columns(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

}  // namespace lamina::plot
