#pragma once

#include "lamina/lab/report/results_file.h"
#include "lamina/lab/run/json_values.h"

namespace lamina::lab::report {

/// Reads the updates, tokens and budget of runs from the study's description in a results file.
void read_recipe(Study& study, const Json& file);

}  // namespace lamina::lab::report
