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
  bool dashed = false;
};

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
  virtual void dot(double x, double y, double radius, Colour fill) = 0;
  /// `size` of the letters; `upwards`: turned by a quarter.
  virtual void text(double x, double y, const std::string& text, double size, Anchor anchor, Colour colour, bool bold,
                    bool upwards) = 0;
  /// Until `unclip` lines and dots are seen in this box only.
  virtual void clip(double x, double y, double width, double height) = 0;
  virtual void unclip() = 0;
};

/// Collects an SVG file.
class SvgCanvas : public Canvas {
 public:
  /// The title is for those who hear the picture.
  SvgCanvas(int width, int height, const std::string& title = {});
  void box(double x, double y, double width, double height, Colour fill, double opacity) override;
  void area(const Points& points, Colour fill, double opacity) override;
  void line(const Points& points, const Stroke& stroke) override;
  void dot(double x, double y, double radius, Colour fill) override;
  void text(double x, double y, const std::string& text, double size, Anchor anchor, Colour colour, bool bold,
            bool upwards) override;
  void clip(double x, double y, double width, double height) override;
  void unclip() override;
  std::string finish() const { return text_ + "</svg>\n"; }

 private:
  std::string text_;
};

}  // namespace lamina::train
