// Perplexity over length, both on logarithmic scales: lines for sliding windows, dashes for windows side by side.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "lamina/lab/stretch.h"
#include "lamina/train/canvas.h"

namespace lamina::lab {
namespace {

using train::Anchor;
using train::Colour;

constexpr int kWidth = 900;
constexpr int kHeight = 540;
constexpr double kLeft = 64;
constexpr double kTop = 46;
constexpr double kRight = 660;
constexpr double kBottom = 480;
constexpr Colour kInk{40, 40, 40};
constexpr Colour kFaint{110, 110, 110};
constexpr Colour kGrid{228, 228, 228};
/// Beyond this many times the best nothing is told apart any more.
constexpr double kWorst = 20;
constexpr std::array<Colour, 11> kColours{{{0, 114, 178},
                                           {213, 94, 0},
                                           {0, 158, 115},
                                           {204, 121, 167},
                                           {230, 159, 0},
                                           {86, 180, 233},
                                           {90, 90, 90},
                                           {140, 86, 75},
                                           {148, 103, 189},
                                           {23, 140, 150},
                                           {170, 170, 0}}};

/// Both logarithmic.
struct Frame {
  double x_low, x_high, y_low, y_high;
  double x(double value) const { return kLeft + (kRight - kLeft) * share(value, x_low, x_high); }
  double y(double value) const { return kBottom - (kBottom - kTop) * share(value, y_low, y_high); }
  static double share(double value, double low, double high) {
    return high > low ? std::log(value / low) / std::log(high / low) : 0.5;
  }
};

Frame frame_of(const StretchResult& result) {
  double low = 1e300;
  double high = 0;
  for (const StretchRow& row : result.rows) {
    for (const auto* numbers : {&row.side_by_side, &row.sliding}) {
      for (const auto& number : *numbers) {
        if (!number || !std::isfinite(*number)) continue;
        low = std::min(low, *number);
        high = std::max(high, *number);
      }
    }
  }
  if (high == 0) low = high = 1;
  return {static_cast<double>(result.lengths.front()), static_cast<double>(result.lengths.back()), low / 1.03,
          std::min(high, low * kWorst) * 1.03};
}

std::string short_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", value);
  return text;
}

void draw_axes(train::Canvas& canvas, const Frame& frame, const StretchResult& result) {
  for (const int64_t length : result.lengths) {
    const double x = frame.x(static_cast<double>(length));
    canvas.line({{x, kTop}, {x, kBottom}}, {kGrid});
    canvas.text(x, kBottom + 19, std::to_string(length), 12, Anchor::middle, kFaint, false, false);
  }
  constexpr int kTicks = 6;
  for (int i = 0; i < kTicks; ++i) {
    const double value = frame.y_low * std::pow(frame.y_high / frame.y_low, (i + 0.5) / kTicks);
    canvas.line({{kLeft, frame.y(value)}, {kRight, frame.y(value)}}, {kGrid});
    canvas.text(kLeft - 8, frame.y(value) + 4, short_text(value), 12, Anchor::end, kFaint, false, false);
  }
  canvas.text((kLeft + kRight) / 2, kBottom + 40, "length read, tokens", 13, Anchor::middle, kInk, false, false);
  canvas.text(18, (kTop + kBottom) / 2, "perplexity", 13, Anchor::middle, kInk, false, true);
}

void draw_row(train::Canvas& canvas, const Frame& frame, const StretchResult& result, const StretchRow& row,
              Colour colour) {
  for (const bool slides : {false, true}) {
    const auto& numbers = slides ? row.sliding : row.side_by_side;
    train::Canvas::Points points;
    for (size_t i = 0; i < numbers.size(); ++i) {
      if (numbers[i] && std::isfinite(*numbers[i])) {
        points.emplace_back(frame.x(static_cast<double>(result.lengths[i])), frame.y(*numbers[i]));
      }
    }
    canvas.line(points, {colour, slides ? 1.8 : 1.2, 1, !slides});
    for (const auto& [x, y] : points) canvas.dot(x, y, slides ? 3.2 : 2.2, colour);
  }
}

}  // namespace

std::string stretch_svg(const StretchResult& result) {
  train::SvgCanvas canvas(kWidth, kHeight);
  const Frame frame = frame_of(result);
  canvas.box(0, 0, kWidth, kHeight, {255, 255, 255}, 1);
  canvas.text(kLeft, 28, "Trained on " + std::to_string(result.trained_length) + " tokens, read further", 16,
              Anchor::start, kInk, true, false);
  draw_axes(canvas, frame, result);
  canvas.clip(kLeft, kTop, kRight - kLeft + 4, kBottom - kTop);
  for (size_t i = 0; i < result.rows.size(); ++i) {
    draw_row(canvas, frame, result, result.rows[i], kColours[i % kColours.size()]);
  }
  canvas.unclip();
  for (size_t i = 0; i < result.rows.size(); ++i) {
    const double y = kTop + 14 + 20 * static_cast<double>(i);
    canvas.line({{kRight + 16, y}, {kRight + 40, y}}, {kColours[i % kColours.size()], 2.2});
    canvas.text(kRight + 46, y + 4, result.rows[i].label, 12, Anchor::start, kInk, false, false);
  }
  canvas.text(kRight + 16, kBottom, "line: sliding; dashes: side by side", 11, Anchor::start, kFaint, false, false);
  return canvas.finish();
}

}  // namespace lamina::lab
