#pragma once

#include "lamina/train/canvas.h"
#include "lamina/train/curves.h"

namespace lamina::train {

// What the pictures of curves share.
inline constexpr int kCurvesWidth = 900;
inline constexpr int kCurvesHeight = 540;

void draw_curves(Canvas& canvas, const std::vector<RunLog>& runs, const CurveOptions& options);

}  // namespace lamina::train
