#pragma once

#include <vector>

#include "lamina/lab/study/study.h"

namespace lamina::lab {

/// Checks everything about a study that does not need its data. Builds every variant, with a placeholder vocabulary if
/// the base has none. Adds to the problems that reading has found.
void check_study(const Study& study, std::vector<arch::Problem>& problems);

}  // namespace lamina::lab
