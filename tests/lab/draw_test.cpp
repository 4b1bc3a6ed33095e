// The figures of `lamina draw`: their numbers against the formulas, and their rendering.
#include <gtest/gtest.h>

#include <cmath>

#include "lamina/lab/draw/figures.h"
#include "support/error_of.h"

namespace lamina::lab {
namespace {

using lamina::testing::expect_error;

const GridDrawing& grid(const Drawing& drawing) { return std::get<GridDrawing>(drawing); }
const CurvesDrawing& curves(const Drawing& drawing) { return std::get<CurvesDrawing>(drawing); }

TEST(Draw, MasksFollowCausalityAndWindows) {
  const Drawing causal = draw_mask(arch::FullPattern{}, true, 6);
  const Drawing window = draw_mask(arch::WindowPattern{.size = 2}, false, 6);
  for (size_t q = 0; q < 6; ++q) {
    for (size_t k = 0; k < 6; ++k) {
      EXPECT_EQ(grid(causal).cells[q][k].has_value(), k <= q) << q << " " << k;
      EXPECT_EQ(grid(window).cells[q][k].has_value(), std::max(q, k) - std::min(q, k) < 2) << q << " " << k;
    }
  }
  EXPECT_NE(grid(causal).caption.find("21 of 36"), std::string::npos);
}

TEST(Draw, AlibiLowersDistantScores) {
  const Drawing drawing = draw_alibi(8, 1, 5);  // the second slope of 8 heads is 2^-2
  EXPECT_DOUBLE_EQ(*grid(drawing).cells[4][0], -1.0);
  EXPECT_DOUBLE_EQ(*grid(drawing).cells[4][3], -0.25);
  EXPECT_EQ(*grid(drawing).cells[2][2], 0.0);
  EXPECT_FALSE(grid(drawing).cells[0][1]);
  expect_error([] { draw_alibi(8, 8, 5); }, "expected 0 to 7");
}

TEST(Draw, RopeStartsAtOneAndFollowsItsFrequencies) {
  const Drawing drawing = draw_rope(4, {100}, 10);
  ASSERT_EQ(curves(drawing).curves[0].points.size(), 11u);
  for (const auto& [distance, score] : curves(drawing).curves[0].points) {
    EXPECT_NEAR(score, (std::cos(distance) + std::cos(distance / 10)) / 2, 1e-12);  // 100^(-2i/4)
  }
  expect_error([] { draw_rope(5, {1e4}, 10); }, "even");
}

TEST(Draw, NormsOfOneToNine) {
  const Drawing drawing = draw_norms(9);
  const auto& layer = curves(drawing).curves[0].points;
  const auto& rms = curves(drawing).curves[1].points;
  EXPECT_NEAR(layer[0].second, -4 / std::sqrt(60.0 / 9), 1e-9);
  EXPECT_NEAR(layer[4].second, 0, 1e-12);
  EXPECT_NEAR(rms[8].second, 9 / std::sqrt(285.0 / 9), 1e-9);
}

TEST(Draw, ActivationsCapsAndVariance) {
  const Drawing activation = draw_activations({Activation::relu, Activation::silu});
  for (const auto& [x, y] : curves(activation).curves[1].points) EXPECT_NEAR(y, x / (1 + std::exp(-x)), 1e-9);
  EXPECT_NE(lamina::testing::error_of([] { draw_soft_caps({INFINITY}); }).find("expected above 0"), std::string::npos);
  EXPECT_NE(curves(draw_soft_caps({30})).caption.find("100 becomes 29.92"), std::string::npos);
  const Drawing variance = draw_score_variance(64);
  EXPECT_NEAR(curves(variance).curves[0].points.back().second, 64, 8);
  EXPECT_NEAR(curves(variance).curves[1].points.back().second, 1, 0.13);
}

TEST(Draw, HeadsAndTiles) {
  const Drawing heads = draw_heads(6, 2);
  for (size_t h = 0; h < 6; ++h) EXPECT_TRUE(grid(heads).cells[h][h / 3]);
  expect_error([] { draw_heads(6, 4); }, "not a multiple");
  const Drawing tiles = draw_tiles(arch::FullPattern{}, true, 256, 64);
  EXPECT_EQ(*grid(tiles).cells[1][0], 2);
  EXPECT_EQ(*grid(tiles).cells[1][1], 1);
  EXPECT_FALSE(grid(tiles).cells[1][2]);
}

TEST(Draw, MemoryOfTilesIsCounted) {
  const Drawing drawing = draw_memory(/*causal=*/true, 256, 64, 64);
  const auto& memory = std::get<MemoryDrawing>(drawing);
  ASSERT_EQ(memory.levels.size(), 3u);
  EXPECT_EQ(memory.levels[0].parts[0].bytes, 64 * 64 * 2);
  EXPECT_EQ(memory.levels[0].parts[3].bytes, 64 * 64 * 4);
  EXPECT_EQ(memory.levels[1].parts[1].bytes, 256 * 64 * 2);
  EXPECT_EQ(memory.levels[2].parts[0].bytes, 256 * 256 * 2);
  // Query tiles 1 to 4 read as many tiles of keys: 10 of 4, 2.5 times each.
  EXPECT_NE(memory.levels[0].moves.find("keys and values 2.5 times"), std::string::npos) << memory.levels[0].moves;
  expect_error([] { draw_memory(true, 64, 64, 128); }, "tile");
}

TEST(Draw, RendersEveryKindAsSvgAndText) {
  for (const Drawing& drawing : {draw_mask(arch::FullPattern{}, true, 40), draw_alibi(4, 0, 4), draw_norms(9),
                                 draw_memory(false, 2048, 64, 128)}) {
    const std::string svg = drawing_svg(drawing);
    EXPECT_EQ(svg.rfind("<svg", 0), 0u) << svg.substr(0, 60);
    EXPECT_NE(svg.find("viewBox"), std::string::npos);
    EXPECT_NE(svg.find("prefers-color-scheme: dark"), std::string::npos);
    EXPECT_GT(drawing_text(drawing, false).size(), 60u);
  }
  EXPECT_NE(drawing_text(draw_alibi(4, 0, 4), false).find("-0.75"), std::string::npos);
  // Axes have round numbers.
  const std::string caps = drawing_text(draw_soft_caps({30}), false);
  for (const char* tick : {"      20 ", "       0 ", "     -20 "}) {
    EXPECT_NE(caps.find(tick), std::string::npos) << tick << "\n" << caps;
  }
}

/// Widest text of an SVG file beyond its view, in characters of 6 pixels; 0 if all fit.
double overhang(const std::string& svg) {
  const auto number_after = [](const std::string& text, const std::string& key, size_t from) {
    return std::stod(text.substr(text.find(key, from) + key.size()));
  };
  const double width = number_after(svg, "viewBox=\"0 0 ", 0);
  double most = 0;
  for (size_t at = svg.find("<text"); at != std::string::npos; at = svg.find("<text", at + 1)) {
    const size_t begin = svg.find('>', at) + 1;
    const std::string tag = svg.substr(at, begin - at);
    if (tag.find("anchor=\"start\"") == std::string::npos || tag.find("rotate") != std::string::npos) continue;
    const auto length = static_cast<double>(svg.find('<', begin) - begin);
    most = std::max(most, number_after(svg, " x=\"", at) + 6 * length - width);
  }
  return most;
}

TEST(Draw, CaptionsStayInsideTheFigure) {
  for (const Drawing& drawing :
       {draw_heads(8, 2), draw_tiles(arch::FullPattern{}, true, 2048, 128), draw_rope(8, {1e4}, 9),
        draw_score_variance(8), draw_norms(9), draw_memory(true, 2048, 64, 128)}) {
    const std::string svg = drawing_svg(drawing);
    EXPECT_LE(overhang(svg), 0) << svg.substr(0, 200);
  }
}

}  // namespace
}  // namespace lamina::lab
