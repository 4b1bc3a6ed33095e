#pragma once

#include "lamina/lab/run/plan.h"
#include "lamina/lab/run/runner.h"

namespace lamina::lab {

/// Trains every variant with all combinations of the study's tuning values and the tuning seeds. Adds the changes of
/// the combination with the lowest mean of best validation losses to the variant's recipe changes, so that its runs use
/// them; all trials are kept in the results. Without tuning values it does nothing. Returns false if it was stopped.
bool tune(const Planner& planner, Runner& runner, Results& results);

}  // namespace lamina::lab
