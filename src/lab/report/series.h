#pragma once

#include <string>
#include <vector>

#include "lamina/lab/report/results_file.h"

namespace lamina::lab::report {

// The data series of the charts, for both the SVG images and web/charts.

/// The mean over a variant's seeds ± one standard deviation, at the steps (`x`) for which a run has a value.
struct Band {
  std::string label;
  struct Point {
    double x = 0;
    double mean = 0;
    double low = 0;
    double high = 0;
    size_t seeds = 0;
    Number tokens = {};   ///< training tokens at this step; empty if not recorded
    Number seconds = {};  ///< training time, mean over seeds; empty if not recorded
  };
  std::vector<Point> points;
};
enum class Losses { validation, training };
/// The bands of all variants that have data.
std::vector<Band> bands_of(const Study& study, Losses losses);

/// A variant in a chart of quality against cost.
struct CostPoint {
  std::string label;
  double cost = 0;
  double quality = 0;
  Number spread;
};
/// A chart of quality against one cost.
struct CostChart {
  std::string key;
  std::string title;
  std::vector<CostPoint> points;
};
/// One chart for each cost that differs by 2 % or more between variants. If there is none, one for each cost that
/// differs at all. The first chart separates the most variants.
std::vector<CostChart> cost_charts(const Study& study);

/// All labels in the study's charts, in a fixed order, so that each label has the same colour in the whole report.
std::vector<std::string> labels_of(const Study& study);

}  // namespace lamina::lab::report
