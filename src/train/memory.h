#pragma once

#include <optional>
#include <string>

#include "lamina/arch/cost.h"
#include "lamina/tensor/device.h"
#include "lamina/train/recipe.h"

namespace lamina::train {

/// Memory in bytes that a run of this resolved recipe needs on a kind of device, including cached allocations. Found by
/// running an update and an evaluation on a meta device. Workspaces inside kernels are not counted. On a GPU, the copy
/// of a checkpoint is in host memory and is not counted here (see save_copy()).
arch::TrainingMemory training_memory(const Recipe& recipe, DeviceKind device = DeviceKind::cpu);
/// Host memory in bytes that background saving needs on a rank: a copy of everything it writes. 0 if the recipe saves
/// in the foreground.
double save_copy(const Recipe& recipe);
/// Sum of all parts of training_memory().
double memory_estimate(const Recipe& recipe, DeviceKind device = DeviceKind::cpu);

/// Bytes that this process can still allocate: the minimum of the system's free memory and the cgroup's limit minus its
/// use. Empty if neither is known. The paths are parameters for tests.
std::optional<double> available_memory(const std::string& proc = "/proc", const std::string& cgroup = "/sys/fs/cgroup");

/// Bytes available on a device: GPU memory, or host memory for a CPU.
std::optional<double> available_memory(const Device& device);

/// Throws an Error with suggestions if the memory estimate exceeds `available`.
void check_memory(const Recipe& recipe, std::optional<double> available, DeviceKind device = DeviceKind::cpu);
/// Compares the estimate with the memory that is available on the device now.
void check_memory(const Recipe& recipe, const Device& device);

}  // namespace lamina::train
