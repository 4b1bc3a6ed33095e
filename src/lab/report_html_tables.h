#pragma once

#include <string>

#include "lamina/lab/report_results.h"

namespace lamina::lab::report {

/// HTML in a region that scrolls sideways. The page's script shows a hint below it while there is more to the right.
std::string scrolling(const std::string& name, const std::string& content);
/// The table of all variants, which sorts by every column; the page's script hides all but the main columns at first.
std::string results_table(const Study& study);
/// The numbers of the extrapolation chart and of the passkey maps.
std::string stretch_table(const Study& study);
std::string passkey_table(const Study& study);

}  // namespace lamina::lab::report
