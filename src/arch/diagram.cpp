#include "lamina/arch/diagram.h"

#include <algorithm>
#include <cmath>

namespace lamina::arch {
namespace {

using plot::Colour;

constexpr double kMargin = 24;
constexpr Colour kEdge{51, 51, 51};
constexpr Colour kPlain{254, 254, 254};  // not the background's white, because dark mode replaces the two differently

Colour fill_of(Diagram::Tone tone) {
  switch (tone) {
    case Diagram::Tone::norm: return {253, 243, 208};
    case Diagram::Tone::mixer: return {215, 232, 251};
    case Diagram::Tone::ffn: return {217, 240, 220};
    case Diagram::Tone::outer: return {236, 228, 245};
    case Diagram::Tone::plain: break;
  }
  return kPlain;
}

// Dark mode: replaces the light colours, which are SVG attributes, if the reader prefers a dark scheme.
constexpr const char* kDarkColours = R"(@media (prefers-color-scheme: dark) {
text { fill: #e7ebf1 } [stroke="#333333"] { stroke: #a9b4c2 } [fill="#333333"] { fill: #a9b4c2 }
[fill="#ffffff"] { fill: #14181f } [fill="#fefefe"] { fill: #1f2630 } [fill="#fdf3d0"] { fill: #4d4118 }
[fill="#d7e8fb"] { fill: #1c3d5f } [fill="#d9f0dc"] { fill: #1e4a2c } [fill="#ece4f5"] { fill: #40305a }
})";

}  // namespace

Diagram::Diagram() : canvas_(0, 0, {.title = "", .css = kDarkColours, .background = plot::kPaper}) {}

void Diagram::extend(double x, double y) {
  width_ = std::max(width_, x);
  height_ = std::max(height_, y);
}

void Diagram::box(double centre, double bottom, double width, double height, Tone tone,
                  const std::vector<std::string>& lines) {
  const double left = centre - width / 2;
  extend(left + width, bottom + height);
  canvas_.rounded_box(left, -bottom - height, width, height, 6, fill_of(tone), kEdge);
  double y = bottom + height - 5 - kTextHeight * 0.75;
  for (size_t i = 0; i < lines.size(); ++i, y -= kTextHeight) {
    write(centre, y, lines[i], i == 0, plot::Anchor::middle);
  }
  shapes_.boxes.push_back({left, bottom, width, height, lines});
}

void Diagram::text(double x, double y, const std::string& text, bool bold, plot::Anchor anchor) {
  write(x, y, text, bold, anchor);
  shapes_.texts.push_back({x, y, text, anchor == plot::Anchor::middle});
}

void Diagram::write(double x, double y, const std::string& text, bool bold, plot::Anchor anchor) {
  extend(x, y + kTextHeight);
  canvas_.text(x, -y, text, {.size = 11, .anchor = anchor, .colour = {}, .bold = bold});
}

void Diagram::line(const plot::Canvas::Points& points) {
  stroke(points);
  shapes_.lines.push_back({points, false});
}

void Diagram::stroke(const plot::Canvas::Points& points) {
  plot::Canvas::Points downwards;
  for (const auto& [x, y] : points) {
    extend(x, y);
    downwards.emplace_back(x, -y);
  }
  canvas_.line(downwards, {kEdge});
}

void Diagram::arrow(const plot::Canvas::Points& points) {
  stroke(points);
  shapes_.lines.push_back({points, true});
  const std::pair<double, double> from = points[points.size() - 2];
  const double x = points.back().first;
  const double y = points.back().second;
  const double length = std::hypot(x - from.first, y - from.second);
  const double dx = (x - from.first) / length;
  const double dy = (y - from.second) / length;
  // A corner of the arrowhead: `ahead` along the line, measured from its end, and `aside` to its left.
  const auto corner = [&](double ahead, double aside) {
    return std::pair(x + ahead * dx - aside * dy, -(y + ahead * dy + aside * dx));
  };
  canvas_.area({corner(-6.1, 3.5), corner(0.9, 0), corner(-6.1, -3.5)}, kEdge, 1);
}

void Diagram::plus(double x, double y) {
  extend(x + 9, y + 9);
  canvas_.rounded_box(x - 9, -y - 9, 18, 18, 9, kPlain, kEdge);
  stroke({{x - 5, y}, {x + 5, y}});
  stroke({{x, y - 5}, {x, y + 5}});
  shapes_.additions.emplace_back(x, y);
}

std::string Diagram::finish() {
  canvas_.set_view(-kMargin, -height_ - kMargin, width_ + 2 * kMargin, height_ + 2 * kMargin);
  return canvas_.finish();
}

}  // namespace lamina::arch
