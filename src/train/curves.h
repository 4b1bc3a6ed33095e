#pragma once

#include <string>
#include <vector>

#include "lamina/train/run_log.h"

namespace lamina::train {

enum class CurveX { step, tokens, seconds };

struct CurveOptions {
  CurveX x = CurveX::step;
  /// 0 … 1: how much of the mean so far stays at every point of the training loss; the curve itself then is a shadow
  /// behind. 0: none.
  double smoothing = 0;
  std::string title;
  int columns = 100;    ///< of a terminal
  int rows = 24;        ///< of a terminal
  bool colours = true;  ///< of a terminal
};

/// Losses of several runs in one picture: training as lines, validation as points joined by dashes, a colour for each
/// run, the best validation loss in the legend. As an SVG file's text:
std::string curves_svg(const std::vector<RunLog>& runs, const CurveOptions& options);
/// For a terminal, in Braille dots:
std::string curves_text(const std::vector<RunLog>& runs, const CurveOptions& options);
/// A PNG file, twice as large; an Error where the program was built without cairo.
void write_curves_png(const std::vector<RunLog>& runs, const CurveOptions& options, const std::string& path);

/// The mean so far with weights that fall by `smoothing` a point: s_t = (Σ smoothing^(t−i) · loss_i) / Σ
/// smoothing^(t−i).
std::vector<RunPoint> smoothed(const std::vector<RunPoint>& points, double smoothing);

}  // namespace lamina::train
