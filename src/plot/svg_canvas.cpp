#include "lamina/plot/svg_canvas.h"

#include <array>
#include <cstdio>

#include "lamina/base/error.h"

namespace lamina::plot {
namespace {

/// Formats a number with one decimal, which is precise enough and keeps files small.
std::string tenth(double value) {
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), "%.1f", value);
  std::string result = text.data();
  if (result.ends_with(".0")) result.resize(result.size() - 2);
  return result;
}

std::string hex(Colour colour) {
  std::array<char, 8> text;
  std::snprintf(text.data(), text.size(), "#%02x%02x%02x", colour.red, colour.green, colour.blue);
  return text.data();
}

std::string list(const Canvas::Points& points) {
  std::string text;
  for (const auto& [x, y] : points) text += (text.empty() ? "" : " ") + tenth(x) + "," + tenth(y);
  return text;
}

std::string rectangle(double x, double y, double width, double height) {
  return str("<rect x=\"", tenth(x), "\" y=\"", tenth(y), "\" width=\"", tenth(width), "\" height=\"", tenth(height),
             "\"");
}

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&': result += "&amp;"; break;
      case '<': result += "&lt;"; break;
      case '>': result += "&gt;"; break;
      default: result += static_cast<unsigned char>(c) < ' ' ? ' ' : c;  // XML does not allow control characters
    }
  }
  return result;
}

}  // namespace

void SvgCanvas::box(double x, double y, double width, double height, Colour fill) {
  body_ += str(rectangle(x, y, width, height), " fill=\"", hex(fill), "\"/>\n");
}

void SvgCanvas::rounded_box(double x, double y, double width, double height, double radius, Colour fill,
                            Colour border) {
  body_ += str(rectangle(x, y, width, height), " rx=\"", tenth(radius), "\" fill=\"", hex(fill), "\" stroke=\"",
               hex(border), "\"/>\n");
}

void SvgCanvas::area(const Points& points, Colour fill, double opacity) {
  body_ += str("<polygon fill=\"", hex(fill), "\" fill-opacity=\"", opacity, "\" points=\"", list(points), "\"/>\n");
}

void SvgCanvas::line(const Points& points, const Stroke& stroke) {
  body_ += str("<polyline fill=\"none\" stroke=\"", hex(stroke.colour), "\" stroke-width=\"", stroke.width,
               "\" stroke-linejoin=\"round\"");
  if (stroke.opacity < 1) body_ += str(" stroke-opacity=\"", stroke.opacity, "\"");
  for (size_t i = 0; i < stroke.dashes.size(); ++i) {
    body_ += str(i == 0 ? " stroke-dasharray=\"" : " ", tenth(stroke.dashes[i]));
  }
  if (!stroke.dashes.empty()) body_ += "\"";
  if (stroke.dash_offset != 0) body_ += str(" stroke-dashoffset=\"", tenth(stroke.dash_offset), "\"");
  body_ += str(" points=\"", list(points), "\"/>\n");
}

void SvgCanvas::dot(double x, double y, double radius, Colour fill, Marker marker) {
  if (marker != Marker::circle) {
    body_ += str("<polygon class=\"marker\" fill=\"", hex(fill), "\" stroke=\"#ffffff\" points=\"",
                 list(marker_corners(marker, x, y, radius)), "\"/>\n");
    return;
  }
  body_ += str("<circle cx=\"", tenth(x), "\" cy=\"", tenth(y), "\" r=\"", radius, "\" fill=\"", hex(fill),
               "\" stroke=\"#ffffff\"/>\n");
}

void SvgCanvas::text(double x, double y, const std::string& text, const TextStyle& style) {
  constexpr std::array<const char*, 3> kAnchors{"start", "middle", "end"};
  body_ += str("<text x=\"", tenth(x), "\" y=\"", tenth(y), "\" font-size=\"", style.size, "\" text-anchor=\"",
               kAnchors[static_cast<size_t>(style.anchor)], "\" fill=\"", hex(style.colour), "\"");
  if (style.bold) body_ += " font-weight=\"bold\"";
  if (style.upwards) body_ += str(" transform=\"rotate(-90 ", tenth(x), " ", tenth(y), ")\"");
  body_ += str(">", escaped(text), "</text>\n");
}

void SvgCanvas::clip(double x, double y, double width, double height) {
  body_ += str("<svg x=\"", tenth(x), "\" y=\"", tenth(y), "\" width=\"", tenth(width), "\" height=\"", tenth(height),
               "\" viewBox=\"", tenth(x), " ", tenth(y), " ", tenth(width), " ", tenth(height), "\">\n");
}

void SvgCanvas::unclip() { body_ += "</svg>\n"; }

void SvgCanvas::set_view(double x, double y, double width, double height) {
  x_ = x;
  y_ = y;
  width_ = width;
  height_ = height;
}

std::string SvgCanvas::finish() const {
  std::string head = str("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", tenth(width_), "\" height=\"",
                         tenth(height_), "\" viewBox=\"", tenth(x_), " ", tenth(y_), " ", tenth(width_), " ",
                         tenth(height_), "\" font-family=\"DejaVu Sans, Helvetica, Arial, sans-serif\">\n");
  if (!options_.title.empty()) head += str("<title>", escaped(options_.title), "</title>\n");
  if (!options_.css.empty()) head += str("<style>", options_.css, "</style>\n");
  if (options_.background) {
    head += str(rectangle(x_, y_, width_, height_), " fill=\"", hex(*options_.background), "\"/>\n");
  }
  return str(head, body_, "</svg>\n");
}

}  // namespace lamina::plot
