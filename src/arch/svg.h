#pragma once

#include <string>
#include <vector>

namespace lamina::arch {

/// A drawing of boxes, lines and texts in which y grows upwards, as data flows through a model. Viewers that know CSS
/// show it light or dark, as the reader prefers.
class Svg {
 public:
  enum class Tone { plain, norm, mixer, ffn, outer };

  /// A box standing on `bottom`, its lines of text centred; the first is the title.
  void box(double centre, double bottom, double width, double height, Tone tone, const std::vector<std::string>& lines);
  void text(double x, double y, const std::string& text, bool bold, const char* anchor = "middle");
  /// Through all points; with an arrow at the last.
  void arrow(const std::vector<std::pair<double, double>>& points);
  void line(const std::vector<std::pair<double, double>>& points);
  /// A residual addition.
  void plus(double x, double y);

  /// The whole file.
  std::string finish() const;

  static constexpr double kTextHeight = 14;
  /// Height of a box that holds so many lines.
  static double box_height(size_t lines) { return 10 + kTextHeight * static_cast<double>(lines); }

 private:
  void reach(double x, double y);
  void path(const std::vector<std::pair<double, double>>& points, const char* style);

  std::string body_;
  double width_ = 0;
  double height_ = 0;
};

}  // namespace lamina::arch
