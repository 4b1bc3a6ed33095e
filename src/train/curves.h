#pragma once

#include <string>
#include <vector>

#include "lamina/train/run_log.h"

namespace lamina::train {

enum class CurveX { step, tokens, seconds };

struct CurveOptions {
  CurveX x = CurveX::step;
  /// 0 … 1: weight of the mean so far at each point of the training loss. The unsmoothed curve then is drawn faintly.
  /// 0: no smoothing.
  double smoothing = 0;
  std::string title;
  int columns = 100;    ///< of a terminal
  int rows = 24;        ///< of a terminal
  bool colours = true;  ///< of a terminal
};

/// Losses of several runs in one picture: training as thin lines, validation as lines with markers, a style for each
/// run or variant, and a legend below with the last losses. The text of an SVG file:
std::string curves_svg(const std::vector<RunLog>& runs, const CurveOptions& options);
/// For a terminal, in Braille dots:
std::string curves_text(const std::vector<RunLog>& runs, const CurveOptions& options);
/// A PNG file, twice as large; an Error where the program was built without cairo.
void write_curves_png(const std::vector<RunLog>& runs, const CurveOptions& options, const std::string& path);

/// The mean so far with weights that fall by `smoothing` a point: s_t = (Σ smoothing^(t−i) · loss_i) / Σ
/// smoothing^(t−i).
std::vector<RunPoint> smoothed(const std::vector<RunPoint>& points, double smoothing);

}  // namespace lamina::train
