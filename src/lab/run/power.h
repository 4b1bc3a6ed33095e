#pragma once

#include <string>

#include "lamina/lab/study/study.h"

namespace lamina::lab {

/// Power estimate of a study before it starts, in one sentence: the smallest difference that its seeds find with a
/// probability of 80 %, and the number of seeds that a difference of the study's margin takes. Assumes the study's
/// spread. Empty for modes and metrics without a comparison of losses.
std::string power_sentence(const Study& study);

}  // namespace lamina::lab
