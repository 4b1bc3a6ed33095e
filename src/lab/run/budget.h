#pragma once

#include "lamina/lab/run/plan.h"
#include "lamina/lab/run/runner.h"

namespace lamina::lab {

/// Computes the updates of every variant from the study's budget, unless the study has them already, and sets the
/// study's recipe to those of the base. A budget of seconds first trains each variant for a few updates. `planner` must
/// plan for this study. Returns false if stopped meanwhile.
bool settle_budget(Study& study, const Planner& planner, Runner& runner);

}  // namespace lamina::lab
