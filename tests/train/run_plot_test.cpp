#include "lamina/train/curves.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "data/data_support.h"
#include "lamina/base/files.h"
#include "lamina/plot/chart.h"
#include "lamina/train/curve_axes.h"
#include "support/error_of.h"

namespace lamina::testing {
namespace {

using train::RunLog;
using train::RunPoint;

std::vector<double> losses(const std::vector<RunPoint>& points) {
  std::vector<double> result;
  for (const RunPoint& point : points) result.push_back(point.loss);
  return result;
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(RunLog, RowsOfTrainingAndValidation) {
  const RunLog log = train::parse_run_log(
      "{\"step\":10,\"loss\":4.5,\"tokens\":100,\"seconds\":2}\n{\"step\":10,\"validation_loss\":4.6}\n"
      "{\"step\":20,\"loss\":3.5,\"val_loss\":3.6,\"tokens\":200,\"seconds\":4}\n{\"step\":30,\"lo",
      "log");
  EXPECT_EQ(losses(log.train), (std::vector<double>{4.5, 3.5}));
  EXPECT_EQ(losses(log.validation), (std::vector<double>{4.6, 3.6}));
  EXPECT_EQ(log.validation[0].tokens, 100);
  EXPECT_EQ(log.validation[1].seconds, 4);
}

TEST(RunLog, StepsThatGoBackForgetWhatWasThere) {
  const RunLog log = train::parse_run_log(
      "{\"step\":1,\"loss\":5}\n{\"step\":2,\"loss\":4}\n{\"step\":3,\"loss\":9}\n{\"step\":2,\"loss\":3}\n"
      "{\"step\":4,\"loss\":null}\n",
      "log");
  EXPECT_EQ(losses(log.train), (std::vector<double>{5, 3}));
}

TEST(RunLog, Errors) {
  const TemporaryFolder folder;
  EXPECT_NE(error_of([&] { train::read_run_log(folder.path()); }).find("log.jsonl"), std::string::npos);
  EXPECT_NE(error_of([] { train::parse_run_log("{\"step\":1,\"loss\":5}\nhello\n", "a"); }).find("a:2"),
            std::string::npos);
  EXPECT_NE(error_of([] { train::parse_run_log("", "a"); }).find("no loss yet"), std::string::npos);
  std::filesystem::create_directory(folder / "run");
  write_text(folder / "run/log.jsonl", "{\"step\":1,\"loss\":5}\n");
  EXPECT_EQ(train::read_run_log(folder / "run/").name, "run");
  EXPECT_EQ(train::read_run_log(folder / "run").name, "run");
}

TEST(Axis, TicksAreRoundNumbersInside) {
  const auto ticks = [](double low, double high, int n) { return plot::linear_axis(low, high, n).ticks; };
  EXPECT_EQ(ticks(0, 5000, 9), (std::vector<double>{0, 1000, 2000, 3000, 4000, 5000}));
  EXPECT_EQ(ticks(1.3, 4.4, 7), (std::vector<double>{1.5, 2, 2.5, 3, 3.5, 4}));
  for (const double size : {1e-7, 0.3, 7.0, 12345.0, 3e12}) {
    for (const int wanted : {2, 5, 9}) {
      const plot::Axis axis = plot::linear_axis(size, 2.3 * size, wanted);
      EXPECT_GE(static_cast<int>(axis.ticks.size()), wanted / 3);
      EXPECT_LE(static_cast<int>(axis.ticks.size()), wanted + 1);
      for (const double tick : axis.ticks) {
        EXPECT_GE(tick, size * (1 - 1e-9));
        EXPECT_LE(tick, 2.3 * size * (1 + 1e-9));
      }
    }
  }
  EXPECT_EQ(plot::linear_axis(0, 5000, 5).label(plot::linear_axis(0, 5000, 5).ticks[0]), "0");
  EXPECT_EQ(plot::linear_axis(0, 5000, 5).label(2000), "2000");
  EXPECT_EQ(plot::linear_axis(0, 50000, 5).label(20000), "20k");
  EXPECT_EQ(plot::linear_axis(0, 3e6, 6).label(1.5e6), "1.5M");
  EXPECT_EQ(plot::linear_axis(1.4, 1.9, 6).label(1.5), "1.5");
  EXPECT_FALSE(plot::linear_axis(3, 3, 5).ticks.empty());
}

TEST(CurveAxes, FewPointsLieInsideAndManyWithoutTheFirst) {
  RunLog run;
  run.train = {{1, 0, 0, 9}, {2, 0, 0, 3}, {3, 0, 0, 2}};
  EXPECT_GT(train::curve_axes({run}, train::CurveX::step, 5, 5).y.high, 9);
  for (int step = 4; step < 200; ++step) run.train.push_back({static_cast<double>(step), 0, 0, 2.0 - step * 0.001});
  EXPECT_LT(train::curve_axes({run}, train::CurveX::step, 5, 5).y.high, 3);
}

TEST(Curves, SmoothingIsTheWeightedMeanSoFar) {
  const std::vector<RunPoint> points{{1, 0, 0, 8}, {2, 0, 0, 4}, {3, 0, 0, 2}};
  const std::vector<double> result = losses(train::smoothed(points, 0.5));
  EXPECT_DOUBLE_EQ(result[0], 8);
  EXPECT_DOUBLE_EQ(result[1], (8 * 0.5 + 4) / 1.5);
  EXPECT_DOUBLE_EQ(result[2], (8 * 0.25 + 4 * 0.5 + 2) / 1.75);
  EXPECT_EQ(losses(train::smoothed(points, 0)), losses(points));
  EXPECT_THROW(train::smoothed(points, 1), Error);
}

/// A loss that falls, 1000 points, and validation every hundred.
RunLog falling(const std::string& name, double end) {
  RunLog run;
  run.name = name;
  for (int step = 1; step <= 1000; ++step) {
    const double loss = end + 3 * std::exp(-step / 150.0) + 0.05 * std::sin(step * 12.9898);
    run.train.push_back({static_cast<double>(step), step * 4096.0, step * 0.5, loss});
    if (step % 100 == 0) run.validation.push_back({static_cast<double>(step), step * 4096.0, step * 0.5, loss + 0.1});
  }
  return run;
}

TEST(Curves, SvgShowsEveryRun) {
  train::CurveOptions options;
  options.title = "a < b & c";
  const std::string svg = train::curves_svg({falling("first", 1.5), falling("<second>", 1.3)}, options);
  EXPECT_EQ(count(svg, "<circle"), 2 * 10U + 2);
  EXPECT_NE(svg.find("a &lt; b &amp; c"), std::string::npos);
  EXPECT_NE(svg.find("&lt;second&gt;"), std::string::npos);
  EXPECT_EQ(count(svg, "<svg"), count(svg, "</svg>"));
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_LT(svg.size(), 100000U);
  options.x = train::CurveX::seconds;
  EXPECT_NE(train::curves_svg({falling("first", 1.5)}, options).find(">minutes<"), std::string::npos);
}

std::vector<double> attribute(const std::string& svg, const std::string& element, const std::string& name) {
  std::vector<double> values;
  for (size_t at = svg.find("<" + element); at != std::string::npos; at = svg.find("<" + element, at + 1)) {
    const size_t end = svg.find('>', at);
    const size_t found = svg.find(" " + name + "=\"", at);
    if (found < end) values.push_back(std::stod(svg.substr(found + name.size() + 3)));
  }
  return values;
}

// Text starts below the axis' name, and the picture is high enough for all of it.
TEST(Curves, LegendIsBelowTheChart) {
  std::vector<RunLog> runs;
  for (int i = 0; i < 20; ++i) runs.push_back(falling(str("run ", i), 1.5 + 0.01 * i));
  const std::string svg = train::curves_svg(runs, {});
  const size_t axis = svg.find(">step<");
  ASSERT_NE(axis, std::string::npos);
  const double axis_y = attribute(svg.substr(svg.rfind("<text", axis)), "text", "y")[0];
  const double height = attribute(svg, "svg", "height")[0];
  for (int i = 0; i < 20; ++i) {
    const size_t entry = svg.find(str(">run ", i, ": "));
    ASSERT_NE(entry, std::string::npos) << i;
    const double y = attribute(svg.substr(svg.rfind("<text", entry)), "text", "y")[0];
    EXPECT_GT(y, axis_y) << i;
    EXPECT_LT(y, height) << i;
  }
  EXPECT_NE(svg.find(str("viewBox=\"0 0 900 ", static_cast<int>(height), "\"")), std::string::npos);
}

TEST(Curves, TwentyEightStylesDiffer) {
  const auto id = [](size_t place) {
    const plot::CurveStyle style = plot::curve_style(place);
    return std::tuple(style.colour.red, style.colour.green, style.colour.blue, style.dashes, style.marker);
  };
  for (size_t i = 0; i < 28; ++i) {
    for (size_t j = 0; j < i; ++j) EXPECT_NE(id(i), id(j)) << i << " " << j;
  }
}

// Three equal curves: a solid one, and two that cover a third of it each, with gaps.
TEST(Curves, CurvesThatCoincideAlternate) {
  const plot::Canvas::Points line{{0, 0}, {50, 20}, {100, 30}};
  const plot::Canvas::Points other{{0, 9}, {50, 29}, {100, 39}};
  const std::vector<plot::Overlap> overlaps = plot::overlaps_of({line, other, line, line});
  EXPECT_EQ(overlaps[1].count, 1U);
  EXPECT_EQ(overlaps[0].count, 3U);
  EXPECT_EQ(overlaps[2].index, 1U);
  EXPECT_EQ(overlaps[3].index, 2U);
  const plot::Stroke dashed = plot::curve_style(7).stroke(2);
  EXPECT_EQ(plot::overlapping(dashed, overlaps[1]).dashes, dashed.dashes);
  EXPECT_TRUE(plot::overlapping(dashed, overlaps[0]).dashes.empty());
  EXPECT_EQ(plot::overlapping(dashed, overlaps[2]).dashes, (std::vector<double>{9, 18}));
  // A dash begins where the pattern does: the first dashes start 9 and 18 pixels along the line.
  EXPECT_EQ(plot::overlapping(dashed, overlaps[2]).dash_offset, 27 - 9);
  EXPECT_EQ(plot::overlapping(dashed, overlaps[3]).dash_offset, 27 - 18);
  const std::string svg = train::curves_svg({falling("a", 1.5), falling("b", 1.5)}, {});
  EXPECT_EQ(count(svg, "stroke-dasharray=\"9 9\""), 2U);  // training and validation of b
  EXPECT_EQ(count(svg, "<circle"), 10U + 2);              // taken in turns; two in the legend
}

TEST(Curves, RunsOfAVariantShareAStyleAndALineOfTheLegend) {
  std::vector<RunLog> runs{falling("rope, seed 1", 1.5), falling("rope, seed 2", 1.7), falling("gelu, seed 1", 2)};
  runs[0].variant = runs[1].variant = "rope";
  runs[2].variant = "gelu";
  runs[0].train.back().loss = 1.5;
  runs[1].train.back().loss = 1.75;
  const std::string svg = train::curves_svg(runs, {});
  EXPECT_EQ(count(svg, ">rope, 2 runs: training 1.625,"), 1U);
  EXPECT_EQ(count(svg, ">gelu: training"), 1U);
  EXPECT_EQ(count(svg, "seed"), 0U);
  train::CurveOptions options;
  options.colours = false;
  EXPECT_EQ(count(train::curves_text(runs, options), "\n"), 24U + 2 + 2);  // rows, axis, legend
}

/// A line that falls from corner to corner has a dot in every column, lower and lower.
TEST(Curves, TerminalDotsFollowTheLoss) {
  RunLog run;
  run.name = "straight";
  for (int step = 0; step <= 100; ++step) run.train.push_back({static_cast<double>(step), 0, 0, 5 - step * 0.03});
  train::CurveOptions options;
  options.columns = 40;
  options.rows = 8;
  options.colours = false;
  const std::string text = train::curves_text({run}, options);
  std::vector<size_t> first;  // the first column with a dot, of each row
  for (size_t at = 0, row = 0; row < 8; ++row) {
    const size_t end = text.find('\n', at);
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    ASSERT_EQ(plot::text_columns(line), 40U - 1) << line;
    const size_t bar = std::min(line.find("│"), line.find("┤"));
    size_t column = 0;
    for (size_t i = bar + 3; i < line.size() && line[i] == ' '; ++i) ++column;
    first.push_back(column);
  }
  EXPECT_TRUE(std::is_sorted(first.begin(), first.end()));
  EXPECT_LT(first.front(), 3U);
  EXPECT_GT(first.back(), 25U);
  EXPECT_EQ(text.find('\033'), std::string::npos);
  EXPECT_NE(text.find("straight: training 2.000"), std::string::npos);
}

TEST(Curves, PngIsWrittenOrRefused) {
  const TemporaryFolder folder;
  const std::string message = error_of([&] { train::write_curves_png({falling("a", 1)}, {}, folder / "a.png"); });
  if (message.empty()) {
    EXPECT_EQ(read_text(folder / "a.png").substr(1, 3), "PNG");
  } else {
    EXPECT_NE(message.find("libcairo2-dev"), std::string::npos);
  }
}

TEST(Curves, WhatCannotBeDrawnIsAnError) {
  RunLog run;
  run.train = {{1, 0, 0, 2}};
  train::CurveOptions options;
  EXPECT_NO_THROW(train::curves_svg({run}, options));
  EXPECT_NO_THROW(train::curves_text({run}, options));
  options.x = train::CurveX::tokens;
  EXPECT_NE(error_of([&] { train::curves_svg({run}, options); }).find("--x step"), std::string::npos);
  EXPECT_THROW(train::curves_svg({}, options), Error);
}

}  // namespace
}  // namespace lamina::testing
