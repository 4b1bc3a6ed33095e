#pragma once

#include <string>
#include <vector>

#include "lamina/lab/report_results.h"

namespace lamina::lab::report {

/// A chart as a picture, with the words that stand for it.
struct Figure {
  std::string id;  ///< curves, cost, extrapolation, passkey: also the name of its file
  std::string title;
  std::string caption;
  std::string picture_caption;  ///< added where the picture is shown, not the page's own chart
  std::string alternative;      ///< what it shows, for those who do not see it
  std::string svg;
};

/// Those that the study has numbers for.
std::vector<Figure> figures_of(const Study& study);

Figure curves_figure(const Study& study);
Figure cost_figure(const Study& study);
Figure extrapolation_figure(const Study& study);
Figure passkey_figure(const Study& study);

}  // namespace lamina::lab::report
