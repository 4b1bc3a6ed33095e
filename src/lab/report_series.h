#pragma once

#include <string>
#include <vector>

#include "lamina/lab/report_results.h"

namespace lamina::lab::report {

// What the charts show, for the pictures and for the page's script alike.

/// A variant's mean over seeds and one standard deviation to either side, at the steps where a run has a number.
struct Band {
  std::string label;
  struct Point {
    double x = 0;
    double mean = 0;
    double low = 0;
    double high = 0;
    size_t seeds = 0;
  };
  std::vector<Point> points;
};
enum class Losses { validation, training };
/// Variants without a number are left out.
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
/// A chart for each cost that differs between variants by 2 % or more; if none does, for each that differs at all. The
/// first tells the most variants apart.
std::vector<CostChart> cost_charts(const Study& study);

/// Every label that a chart of the study may name, in order: a label keeps its colour through the whole page.
std::vector<std::string> labels_of(const Study& study);

}  // namespace lamina::lab::report
