#pragma once

#include <optional>
#include <string>

#include "lamina/arch/cost.h"
#include "lamina/tensor/device.h"
#include "lamina/train/recipe.h"

namespace lamina::train {

/// Memory in bytes that a run of this resolved recipe needs on a kind of device, cached allocations included. Runs an
/// update and an evaluation on a meta device. Workspaces that kernels allocate internally are not counted. On
/// a GPU the copy of a checkpoint is in host memory, so it is not counted here (save_copy).
arch::TrainingMemory training_memory(const Recipe& recipe, DeviceKind device = DeviceKind::cpu);
/// Host memory in bytes that saving beside training takes on a rank: the copy of what it writes. 0 if the recipe saves
/// without a copy.
double save_copy(const Recipe& recipe);
/// Sum of all parts of training_memory().
double memory_estimate(const Recipe& recipe, DeviceKind device = DeviceKind::cpu);

/// Bytes that this process can still allocate: the smaller of the system's free memory and the cgroup's limit minus its
/// use. Empty if neither is known. The paths are parameters for tests.
std::optional<double> available_memory(const std::string& proc = "/proc", const std::string& cgroup = "/sys/fs/cgroup");

/// Bytes available on a device: GPU memory, or host memory for a CPU.
std::optional<double> available_memory(const Device& device);

/// Throws Error with suggestions if the memory estimate exceeds `available`.
void check_memory(const Recipe& recipe, std::optional<double> available, DeviceKind device = DeviceKind::cpu);
/// Checks the estimate against the memory that is available on the device now.
void check_memory(const Recipe& recipe, const Device& device);

}  // namespace lamina::train
