#pragma once

#include <string>

#include "lamina/lab/report_results.h"

namespace lamina::lab::report {

/// What web/charts.js draws, as JSON: the same series that the pictures show.
std::string chart_data(const Study& study);

}  // namespace lamina::lab::report
