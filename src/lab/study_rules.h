#pragma once

#include <vector>

#include "lamina/lab/study.h"

namespace lamina::lab {

/// Everything about a study that can be wrong before an architecture is built.
void check_study(const Study& study, std::vector<arch::Problem>& problems);

}  // namespace lamina::lab
