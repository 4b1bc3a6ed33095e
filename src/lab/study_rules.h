#pragma once

#include <vector>

#include "lamina/lab/study.h"

namespace lamina::lab {

/// Everything that can be wrong with a study before its data is read: every variant is built, with a placeholder
/// vocabulary if the base has none. `problems` holds what reading it has found.
void check_study(const Study& study, std::vector<arch::Problem>& problems);

}  // namespace lamina::lab
