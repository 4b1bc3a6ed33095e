#pragma once

#include <optional>
#include <string>

#include "lamina/arch/cost.h"
#include "lamina/tensor/device.h"
#include "lamina/train/recipe.h"

namespace lamina::train {

/// Bytes a run of this resolved recipe takes on a kind of device, cached ones included, found by going through an
/// update and an evaluation without memory and arithmetic. What kernels take for themselves while they run is not seen.
arch::TrainingMemory training_memory(const Recipe& recipe, DeviceKind device = DeviceKind::cpu);
/// All of it.
double memory_estimate(const Recipe& recipe, DeviceKind device = DeviceKind::cpu);

/// Bytes this process may still take: what the system and the control groups around it leave; nothing where neither
/// says. The files' places are arguments for tests.
std::optional<double> available_memory(const std::string& proc = "/proc", const std::string& cgroup = "/sys/fs/cgroup");

/// The same of a device's memory, its own or the host's.
std::optional<double> available_memory(const Device& device);

/// An Error with what would help when the estimate is more than `available`.
void check_memory(const Recipe& recipe, std::optional<double> available, DeviceKind device = DeviceKind::cpu);
/// The same for what the device has now.
void check_memory(const Recipe& recipe, const Device& device);

}  // namespace lamina::train
