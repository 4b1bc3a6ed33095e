#pragma once

#include <string>

#include "lamina/arch/diagram.h"
#include "lamina/arch/spec.h"

namespace lamina::arch {

/// Size of a drawn block, in the units of the drawing.
struct BlockSize {
  double width;
  double height;
};

/// Draws one block with its left edge at `left` and its bottom at 0: norms, sublayers, residual lines and additions, in
/// the order in which data passes them, from bottom to top.
BlockSize draw_block(const Block& block, const std::string& title, const std::string& cross_title, double left,
                     Diagram& diagram);

}  // namespace lamina::arch
