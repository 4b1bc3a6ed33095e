#pragma once

#include "lamina/lab/run/plan.h"
#include "lamina/lab/run/runner.h"

namespace lamina::lab {

/// Trains every variant with all combinations of the study's tuning values, and the tuning seeds. The changes of the
/// combination with the lowest mean of best validation losses are added to the variant's recipe changes, so that its
/// runs use them. The results keep all trials. Does nothing if there are no tuning values. Returns false if stopped.
bool tune(const Planner& planner, Runner& runner, Results& results);

}  // namespace lamina::lab
