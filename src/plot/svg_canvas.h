#pragma once

#include <optional>

#include "lamina/plot/canvas.h"

namespace lamina::plot {

/// Properties of an SVG file.
struct SvgOptions {
  std::string title;                 ///< read aloud by screen readers
  std::string css;                   ///< style sheet of the file, for example dark colours
  std::optional<Colour> background;  ///< fills the whole picture
};

/// Draws into the text of an SVG file. Colours are attributes, so that a style sheet can replace them.
class SvgCanvas : public Canvas {
 public:
  SvgCanvas(double width, double height, SvgOptions options = {})
      : width_(width), height_(height), options_(std::move(options)) {}
  void box(double x, double y, double width, double height, Colour fill) override;
  void area(const Points& points, Colour fill, double opacity) override;
  void line(const Points& points, const Stroke& stroke) override;
  void dot(double x, double y, double radius, Colour fill, Marker marker) override;
  void text(double x, double y, const std::string& text, const TextStyle& style) override;
  void clip(double x, double y, double width, double height) override;
  void unclip() override;
  /// A box with round corners and a border.
  void rounded_box(double x, double y, double width, double height, double radius, Colour fill, Colour border);

  /// Sets the visible area, for drawings whose size is known only after drawing.
  void set_view(double x, double y, double width, double height);
  /// Returns the complete SVG file.
  std::string finish() const;

 private:
  double x_ = 0;
  double y_ = 0;
  double width_;
  double height_;
  SvgOptions options_;
  std::string body_;
};

}  // namespace lamina::plot
