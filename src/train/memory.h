#pragma once

#include <optional>
#include <string>

#include "lamina/train/recipe.h"

namespace lamina::train {

/// Bytes a run of this resolved recipe will take, estimated.
double memory_estimate(const Recipe& recipe);

/// Bytes this process may still take: what the system and the control groups around it leave; nothing where neither
/// says. The files' places are arguments for tests.
std::optional<double> available_memory(const std::string& proc = "/proc", const std::string& cgroup = "/sys/fs/cgroup");

/// An Error with what would help when the estimate is more than `available`.
void check_memory(const Recipe& recipe, std::optional<double> available = available_memory());

}  // namespace lamina::train
