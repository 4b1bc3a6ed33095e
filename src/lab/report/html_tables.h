#pragma once

#include <string>

#include "lamina/lab/report/results_file.h"

namespace lamina::lab::report {

/// Wraps HTML in a horizontally scrolling region. page.js shows a hint below it while there is more to the right.
std::string scrolling(const Study& study, const std::string& name, const std::string& content);
/// A table of all variants that can be sorted by every column. At first, page.js hides all but the main columns.
std::string results_table(const Study& study);
/// Tables of the data in the extrapolation chart and the passkey heat maps.
std::string stretch_table(const Study& study);
std::string passkey_table(const Study& study);
/// Effects with interval, p and verdict.
std::string effects_table(const Study& study);
/// Scaling laws with the interval of the exponent.
std::string scaling_table(const Study& study);

}  // namespace lamina::lab::report
