#pragma once

#include <string>
#include <vector>

#include "lamina/lab/report/results_file.h"

namespace lamina::lab::report {

// Data series of the charts, shared by the SVG images and web/charts.

/// A variant's mean over seeds ± one standard deviation, at the steps (`x`) where a run has a value.
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
/// Skips variants without data.
std::vector<Band> bands_of(const Study& study, Losses losses);

struct CostPoint {
  std::string label;
  double cost = 0;
  double quality = 0;
  Number spread;
};
struct CostChart {
  std::string key;
  std::string title;
  std::vector<CostPoint> points;
};
/// One chart per cost that differs by 2 % or more between variants; if there is none, per cost that differs at all. The
/// first chart separates the most variants.
std::vector<CostChart> cost_charts(const Study& study);

/// All labels in the study's charts, in a fixed order, so that a label has the same colour in the whole report.
std::vector<std::string> labels_of(const Study& study);

}  // namespace lamina::lab::report
