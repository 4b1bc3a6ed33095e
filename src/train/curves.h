#pragma once

#include <string>
#include <vector>

#include "lamina/train/run_log.h"

namespace lamina::train {

enum class CurveX { step, tokens, seconds };

/// Options of a chart of loss curves.
struct CurveOptions {
  CurveX x = CurveX::step;
  /// Smoothing of the training loss: the weight of the running mean at each point, in [0, 1). 0 disables it; otherwise
  /// the unsmoothed curve is drawn, too, faintly.
  double smoothing = 0;
  std::string title;
  int columns = 100;    ///< terminal only
  int rows = 24;        ///< terminal only
  bool colours = true;  ///< terminal only
};

/// Charts the losses of several runs: training as thin lines, validation as lines with markers, with one style per run
/// or variant, and a legend with the last losses. Returns the text of an SVG file.
std::string curves_svg(const std::vector<RunLog>& runs, const CurveOptions& options);
/// The chart for a terminal, drawn with Braille dots.
std::string curves_text(const std::vector<RunLog>& runs, const CurveOptions& options);
/// Writes a PNG file at twice the resolution. Throws an Error if the program was built without cairo.
void write_curves_png(const std::vector<RunLog>& runs, const CurveOptions& options, const std::string& path);

/// Exponentially weighted mean with bias correction: s_t = (Σ smoothing^(t−i) · loss_i) / Σ smoothing^(t−i).
std::vector<RunPoint> smoothed(const std::vector<RunPoint>& points, double smoothing);

}  // namespace lamina::train
