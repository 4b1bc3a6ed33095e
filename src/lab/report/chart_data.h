#pragma once

#include <string>

#include "lamina/lab/report/results_file.h"

namespace lamina::lab::report {

/// The data of the charts as JSON, for web/charts. These are the same series as in the SVG images.
std::string chart_data(const Study& study);

}  // namespace lamina::lab::report
