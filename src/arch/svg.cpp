#include "lamina/arch/svg.h"

#include <algorithm>
#include <cstdio>

#include "lamina/base/error.h"

namespace lamina::arch {
namespace {

constexpr double kMargin = 24;

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (static_cast<unsigned char>(c) >= 0x20) {
      out += c;
    }
  }
  return out;
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", value);
  return text;
}

struct Fill {
  const char* name;  ///< its class in the file
  const char* light;
};
Fill fill_of(Svg::Tone tone) {
  switch (tone) {
    case Svg::Tone::norm: return {"norm", "#fdf3d0"};
    case Svg::Tone::mixer: return {"mixer", "#d7e8fb"};
    case Svg::Tone::ffn: return {"ffn", "#d9f0dc"};
    case Svg::Tone::outer: return {"outer", "#ece4f5"};
    case Svg::Tone::plain: break;
  }
  return {"plain", "#ffffff"};
}

// Attributes hold the light colours, which every viewer knows; the style replaces them if the reader prefers dark.
constexpr const char* kHead = R"(<style>@media (prefers-color-scheme: dark) {
.paper { fill: #14181f } text { fill: #e7ebf1 } .edge { stroke: #a9b4c2 } .tip { fill: #a9b4c2 }
.plain { fill: #1f2630 } .norm { fill: #4d4118 } .mixer { fill: #1c3d5f } .ffn { fill: #1e4a2c } .outer { fill: #40305a }
}</style>
<defs><marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path class="tip" d="M0,0 L8,4 L0,8 z" fill="#333"/></marker></defs>
<rect class="paper" width="100%" height="100%" fill="#ffffff"/>
)";

}  // namespace

void Svg::reach(double x, double y) {
  width_ = std::max(width_, x);
  height_ = std::max(height_, y);
}

void Svg::box(double centre, double bottom, double width, double height, Tone tone,
              const std::vector<std::string>& lines) {
  const double left = centre - width / 2;
  reach(left + width, bottom + height);
  const Fill fill = fill_of(tone);
  body_ +=
      str("<rect class=\"edge ", fill.name, "\" x=\"", number(left), "\" y=\"", number(-bottom - height), "\" width=\"",
          number(width), "\" height=\"", number(height), "\" rx=\"6\" fill=\"", fill.light, "\" stroke=\"#333\"/>\n");
  double y = bottom + height - 5 - kTextHeight * 0.75;
  for (size_t i = 0; i < lines.size(); ++i, y -= kTextHeight) text(centre, y, lines[i], i == 0);
}

void Svg::text(double x, double y, const std::string& content, bool bold, const char* anchor) {
  reach(x, y + kTextHeight);
  body_ += str("<text x=\"", number(x), "\" y=\"", number(-y), "\" text-anchor=\"", anchor, "\"",
               bold ? " font-weight=\"bold\"" : "", ">", escaped(content), "</text>\n");
}

void Svg::path(const std::vector<std::pair<double, double>>& points, const char* style) {
  std::string coordinates;
  for (const auto& [x, y] : points) {
    reach(x, y);
    coordinates += str(coordinates.empty() ? "" : " ", number(x), ",", number(-y));
  }
  body_ += str("<polyline class=\"edge\" points=\"", coordinates, "\" fill=\"none\" stroke=\"#333\"", style, "/>\n");
}

void Svg::arrow(const std::vector<std::pair<double, double>>& points) { path(points, " marker-end=\"url(#a)\""); }
void Svg::line(const std::vector<std::pair<double, double>>& points) { path(points, ""); }

void Svg::plus(double x, double y) {
  reach(x + 9, y + 9);
  body_ += str("<circle class=\"edge plain\" cx=\"", number(x), "\" cy=\"", number(-y),
               "\" r=\"9\" fill=\"#fff\" stroke=\"#333\"/>\n");
  line({{x - 5, y}, {x + 5, y}});
  line({{x, y - 5}, {x, y + 5}});
}

std::string Svg::finish() const {
  const double width = width_ + 2 * kMargin;
  const double height = height_ + 2 * kMargin;
  return str("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", number(width), "\" height=\"", number(height),
             "\" viewBox=\"0 0 ", number(width), " ", number(height),
             "\" font-family=\"DejaVu Sans, Helvetica, sans-serif\" font-size=\"11\">\n", kHead,
             "<g transform=\"translate(", number(kMargin), ",", number(height_ + kMargin), ")\">\n", body_,
             "</g>\n</svg>\n");
}

}  // namespace lamina::arch
