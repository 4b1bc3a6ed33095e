#include <array>
#include <cstdio>

#include "lamina/base/error.h"
#include "lamina/train/canvas.h"

namespace lamina::train {
namespace {

/// Formats with one decimal, which is precise enough and keeps files small.
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

SvgCanvas::SvgCanvas(int width, int height, const std::string& title)
    : text_(str("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", width, "\" height=\"", height,
                "\" viewBox=\"0 0 ", width, " ", height,
                "\" font-family=\"DejaVu Sans, Helvetica, Arial, sans-serif\">\n")) {
  if (!title.empty()) text_ += str("<title>", escaped(title), "</title>\n");
}

void SvgCanvas::box(double x, double y, double width, double height, Colour fill, double opacity) {
  text_ += str("<rect x=\"", tenth(x), "\" y=\"", tenth(y), "\" width=\"", tenth(width), "\" height=\"", tenth(height),
               "\" fill=\"", hex(fill), "\"");
  if (opacity < 1) text_ += str(" fill-opacity=\"", opacity, "\"");
  text_ += "/>\n";
}

void SvgCanvas::area(const Points& points, Colour fill, double opacity) {
  text_ += str("<polygon fill=\"", hex(fill), "\" fill-opacity=\"", opacity, "\" points=\"", list(points), "\"/>\n");
}

void SvgCanvas::line(const Points& points, const Stroke& stroke) {
  text_ += str("<polyline fill=\"none\" stroke=\"", hex(stroke.colour), "\" stroke-width=\"", stroke.width,
               "\" stroke-linejoin=\"round\"");
  if (stroke.opacity < 1) text_ += str(" stroke-opacity=\"", stroke.opacity, "\"");
  for (size_t i = 0; i < stroke.dashes.size(); ++i) {
    text_ += str(i == 0 ? " stroke-dasharray=\"" : " ", tenth(stroke.dashes[i]));
  }
  if (!stroke.dashes.empty()) text_ += "\"";
  if (stroke.dash_offset != 0) text_ += str(" stroke-dashoffset=\"", tenth(stroke.dash_offset), "\"");
  text_ += str(" points=\"", list(points), "\"/>\n");
}

Canvas::Points marker_corners(Marker marker, double x, double y, double radius) {
  switch (marker) {
    case Marker::circle: break;
    case Marker::square: {
      const double half = 0.89 * radius;
      return {{x - half, y - half}, {x + half, y - half}, {x + half, y + half}, {x - half, y + half}};
    }
    case Marker::triangle: {
      const double half = 1.35 * radius;  // half of a side
      return {{x, y - 1.56 * radius}, {x + half, y + 0.78 * radius}, {x - half, y + 0.78 * radius}};
    }
    case Marker::diamond: {
      const double half = 1.25 * radius;
      return {{x, y - half}, {x + half, y}, {x, y + half}, {x - half, y}};
    }
  }
  return {};
}

void SvgCanvas::dot(double x, double y, double radius, Colour fill, Marker marker) {
  if (marker != Marker::circle) {
    text_ += str("<polygon class=\"marker\" fill=\"", hex(fill), "\" stroke=\"#ffffff\" points=\"",
                 list(marker_corners(marker, x, y, radius)), "\"/>\n");
    return;
  }
  text_ += str("<circle cx=\"", tenth(x), "\" cy=\"", tenth(y), "\" r=\"", radius, "\" fill=\"", hex(fill),
               "\" stroke=\"#ffffff\"/>\n");
}

void SvgCanvas::text(double x, double y, const std::string& text, double size, Anchor anchor, Colour colour, bool bold,
                     bool upwards) {
  constexpr std::array<const char*, 3> kAnchors{"start", "middle", "end"};
  text_ += str("<text x=\"", tenth(x), "\" y=\"", tenth(y), "\" font-size=\"", size, "\" text-anchor=\"",
               kAnchors[static_cast<size_t>(anchor)], "\" fill=\"", hex(colour), "\"");
  if (bold) text_ += " font-weight=\"bold\"";
  if (upwards) text_ += str(" transform=\"rotate(-90 ", tenth(x), " ", tenth(y), ")\"");
  text_ += str(">", escaped(text), "</text>\n");
}

void SvgCanvas::clip(double x, double y, double width, double height) {
  text_ += str("<svg x=\"", tenth(x), "\" y=\"", tenth(y), "\" width=\"", tenth(width), "\" height=\"", tenth(height),
               "\" viewBox=\"", tenth(x), " ", tenth(y), " ", tenth(width), " ", tenth(height), "\">\n");
}

void SvgCanvas::unclip() { text_ += "</svg>\n"; }

}  // namespace lamina::train
