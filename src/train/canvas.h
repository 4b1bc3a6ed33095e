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
  std::vector<double> dashes;  ///< lengths of dash and gap in turn, in pixels; empty: a solid line
  double dash_offset = 0;      ///< where in the pattern the line begins, in pixels
};

enum class Marker { circle, square, triangle, diamond };
enum class Anchor { start, middle, end };

/// What a picture is drawn on; y grows downwards, from the upper left corner, in pixels.
class Canvas {
 public:
  using Points = std::vector<std::pair<double, double>>;

  virtual ~Canvas() = default;
  virtual void box(double x, double y, double width, double height, Colour fill, double opacity) = 0;
  /// A filled polygon.
  virtual void area(const Points& points, Colour fill, double opacity) = 0;
  virtual void line(const Points& points, const Stroke& stroke) = 0;
  virtual void dot(double x, double y, double radius, Colour fill, Marker marker = Marker::circle) = 0;
  /// `size` of the letters; `upwards`: turned by a quarter.
  virtual void text(double x, double y, const std::string& text, double size, Anchor anchor, Colour colour, bool bold,
                    bool upwards) = 0;
  /// Until `unclip` lines and dots are seen in this box only.
  virtual void clip(double x, double y, double width, double height) = 0;
  virtual void unclip() = 0;
};

/// The corners of a marker with the area of a circle of this radius; empty for the circle itself.
Canvas::Points marker_corners(Marker marker, double x, double y, double radius);

/// Collects an SVG file.
class SvgCanvas : public Canvas {
 public:
  /// Screen readers read the title.
  SvgCanvas(int width, int height, const std::string& title = {});
  void box(double x, double y, double width, double height, Colour fill, double opacity) override;
  void area(const Points& points, Colour fill, double opacity) override;
  void line(const Points& points, const Stroke& stroke) override;
  void dot(double x, double y, double radius, Colour fill, Marker marker) override;
  void text(double x, double y, const std::string& text, double size, Anchor anchor, Colour colour, bool bold,
            bool upwards) override;
  void clip(double x, double y, double width, double height) override;
  void unclip() override;
  /// The whole file.
  std::string finish() const { return text_ + "</svg>\n"; }

 private:
  std::string text_;
};

}  // namespace lamina::train
