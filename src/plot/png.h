#pragma once

#include <functional>
#include <string>

#include "lamina/plot/canvas.h"

namespace lamina::plot {

/// Writes a PNG file with twice this many pixels in each direction. `draw` draws on a canvas of width × height. Throws
/// an Error if the program was built without cairo.
void write_png(const std::string& path, int width, int height, const std::function<void(Canvas&)>& draw);

}  // namespace lamina::plot
