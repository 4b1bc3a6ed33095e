#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lamina::train {

struct Colour {
  unsigned char red = 0;
  unsigned char green = 0;
  unsigned char blue = 0;
};

struct Stroke {
  Colour colour;
  double width = 1;
  double opacity = 1;
  std::vector<double> dashes;  ///< alternating dash and gap lengths in pixels; empty: a solid line
  double dash_offset = 0;      ///< start position in the dash pattern, in pixels
};

enum class Marker { circle, square, triangle, diamond };
enum class Anchor { start, middle, end };

/// Drawing surface. Coordinates are in pixels; the origin is the upper left corner and y grows downwards.
class Canvas {
 public:
  using Points = std::vector<std::pair<double, double>>;

  virtual ~Canvas() = default;
  virtual void box(double x, double y, double width, double height, Colour fill, double opacity) = 0;
  /// Draws a filled polygon.
  virtual void area(const Points& points, Colour fill, double opacity) = 0;
  virtual void line(const Points& points, const Stroke& stroke) = 0;
  virtual void dot(double x, double y, double radius, Colour fill, Marker marker = Marker::circle) = 0;
  /// Draws text. `size` is the font size; `upwards` rotates the text by 90° so that it reads from bottom to top.
  virtual void text(double x, double y, const std::string& text, double size, Anchor anchor, Colour colour, bool bold,
                    bool upwards) = 0;
  /// Restricts lines and dots to this box until `unclip` is called.
  virtual void clip(double x, double y, double width, double height) = 0;
  virtual void unclip() = 0;
};

/// Corners of a marker with the same area as a circle of this radius; empty for Marker::circle.
Canvas::Points marker_corners(Marker marker, double x, double y, double radius);

/// Draws into the text of an SVG file.
class SvgCanvas : public Canvas {
 public:
  /// `title` is what screen readers announce.
  SvgCanvas(int width, int height, const std::string& title = {});
  void box(double x, double y, double width, double height, Colour fill, double opacity) override;
  void area(const Points& points, Colour fill, double opacity) override;
  void line(const Points& points, const Stroke& stroke) override;
  void dot(double x, double y, double radius, Colour fill, Marker marker) override;
  void text(double x, double y, const std::string& text, double size, Anchor anchor, Colour colour, bool bold,
            bool upwards) override;
  void clip(double x, double y, double width, double height) override;
  void unclip() override;
  /// Returns the complete file.
  std::string finish() const { return text_ + "</svg>\n"; }

 private:
  std::string text_;
};

}  // namespace lamina::train
