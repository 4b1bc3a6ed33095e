#pragma once

#include <string>

#include "lamina/lab/report_results.h"

namespace lamina::lab::report {

/// The table of all variants, which sorts by every column.
std::string results_table(const Study& study);
/// The numbers of the extrapolation chart and of the passkey maps.
std::string stretch_table(const Study& study);
std::string passkey_table(const Study& study);

}  // namespace lamina::lab::report
