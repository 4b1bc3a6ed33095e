#pragma once

#include <string>

#include "lamina/lab/study/study.h"

namespace lamina::lab {

/// Estimates the power of a study before it starts, in one sentence. It names the smallest difference that the study's
/// seeds find with a probability of 80 %, and the number of seeds needed to find a difference of the margin. Uses the
/// spread that the study assumes. Empty for modes and metrics that do not compare losses.
std::string power_sentence(const Study& study);

}  // namespace lamina::lab
