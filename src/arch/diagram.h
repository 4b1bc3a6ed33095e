#pragma once

#include <string>
#include <vector>

#include "lamina/arch/text_diagram.h"
#include "lamina/plot/svg_canvas.h"

namespace lamina::arch {

/// A drawing of boxes, lines and text. y grows upwards, the direction in which data flows through a model. The SVG file
/// follows the reader's preference for light or dark colours.
class Diagram {
 public:
  enum class Tone { plain, norm, mixer, ffn, outer };

  Diagram();
  /// A box whose lower edge is at `bottom`, with centred lines of text. The first line is the title.
  void box(double centre, double bottom, double width, double height, Tone tone, const std::vector<std::string>& lines);
  void text(double x, double y, const std::string& text, bool bold, plot::Anchor anchor = plot::Anchor::middle);
  /// A line through all points.
  void line(const plot::Canvas::Points& points);
  /// A line with an arrowhead at its last point.
  void arrow(const plot::Canvas::Points& points);
  /// The circle with a plus sign of a residual addition.
  void plus(double x, double y);

  /// Returns the complete SVG file.
  std::string finish();
  /// Returns the drawing in characters, for a terminal.
  std::string finish_text() const { return text_diagram(shapes_, width_, height_); }

  static constexpr double kTextHeight = 14;
  /// Height of a box that holds this many lines.
  static double box_height(size_t lines) { return 10 + kTextHeight * static_cast<double>(lines); }

 private:
  void extend(double x, double y);
  void write(double x, double y, const std::string& text, bool bold, plot::Anchor anchor);
  void stroke(const plot::Canvas::Points& points);

  plot::SvgCanvas canvas_;
  DiagramShapes shapes_;
  double width_ = 0;
  double height_ = 0;
};

}  // namespace lamina::arch
