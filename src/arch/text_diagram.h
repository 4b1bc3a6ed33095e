#pragma once

#include <string>
#include <vector>

#include "lamina/plot/canvas.h"

namespace lamina::arch {

/// Shapes of a Diagram, with y upwards.
struct DiagramShapes {
  struct Box {
    double left = 0;
    double bottom = 0;
    double width = 0;
    double height = 0;
    std::vector<std::string> lines;
  };
  struct Line {
    plot::Canvas::Points points;
    bool arrow = false;
  };
  struct Text {
    double x = 0;
    double y = 0;
    std::string text;
    bool centred = true;
  };
  std::vector<Box> boxes;
  std::vector<Line> lines;
  std::vector<Text> texts;
  plot::Canvas::Points additions;  ///< residual additions, circles with a plus
};

/// The shapes in box-drawing characters, for a terminal. A text that is wider than its box is cut.
std::string text_diagram(const DiagramShapes& shapes, double width, double height);

}  // namespace lamina::arch
