#pragma once

#include <string>
#include <utility>
#include <vector>

namespace lamina::plot {

struct Colour {
  unsigned char red = 0;
  unsigned char green = 0;
  unsigned char blue = 0;
};
inline constexpr Colour kInk{40, 40, 40};
inline constexpr Colour kFaint{110, 110, 110};
inline constexpr Colour kGrid{228, 228, 228};
inline constexpr Colour kPaper{255, 255, 255};

/// Style of a line.
struct Stroke {
  Colour colour;
  double width = 1;
  double opacity = 1;
  std::vector<double> dashes = {};  ///< alternating dash and gap lengths in pixels; empty: a solid line
  double dash_offset = 0;           ///< start position in the dash pattern, in pixels
};

enum class Marker { circle, square, triangle, diamond };
enum class Anchor { start, middle, end };

/// Style of a text.
struct TextStyle {
  double size = 12;
  Anchor anchor = Anchor::start;
  Colour colour = kInk;
  bool bold = false;
  bool upwards = false;  ///< rotated by 90°, to be read from bottom to top
};

/// Drawing surface. Coordinates are in pixels; the origin is the upper left corner and y grows downwards.
class Canvas {
 public:
  using Points = std::vector<std::pair<double, double>>;

  virtual ~Canvas() = default;
  virtual void box(double x, double y, double width, double height, Colour fill) = 0;
  /// Draws a filled polygon.
  virtual void area(const Points& points, Colour fill, double opacity) = 0;
  virtual void line(const Points& points, const Stroke& stroke) = 0;
  virtual void dot(double x, double y, double radius, Colour fill, Marker marker = Marker::circle) = 0;
  virtual void text(double x, double y, const std::string& text, const TextStyle& style) = 0;
  /// Restricts drawing to this box, until unclip() is called.
  virtual void clip(double x, double y, double width, double height) = 0;
  virtual void unclip() = 0;
};

/// Corners of a marker with the same area as a circle of this radius. Empty for Marker::circle.
Canvas::Points marker_corners(Marker marker, double x, double y, double radius);
/// Number of UTF-8 characters in `text`.
size_t text_columns(const std::string& text);

}  // namespace lamina::plot
