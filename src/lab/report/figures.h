#pragma once

#include <string>
#include <vector>

#include "lamina/lab/report/results_file.h"
#include "lamina/plot/chart.h"
#include "lamina/plot/svg_canvas.h"

namespace lamina::lab::report {

inline constexpr double kPictureWidth = 900;

/// A chart as an SVG image with its texts.
struct Figure {
  std::string id;  ///< effects, curves, scaling, cost, extrapolation or passkey; also the file name
  std::string title;
  std::string caption;
  std::string picture_caption;  ///< added if the image is shown instead of the interactive chart
  std::string alternative;      ///< alt text
  std::string svg;
};

/// All figures that the study has data for.
std::vector<Figure> figures_of(const Study& study);

/// Numbers of a figure as CSV.
std::string figure_csv(const Study& study, const std::string& id);

Figure effects_figure(const Study& study);
Figure scaling_figure(const Study& study);
Figure curves_figure(const Study& study);
Figure cost_figure(const Study& study);
Figure extrapolation_figure(const Study& study);
Figure passkey_figure(const Study& study);

}  // namespace lamina::lab::report
