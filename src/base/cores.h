#pragma once

#include <string>
#include <vector>

namespace lamina {

/// Number of physical cores this process may use: from its affinity mask, limited by the cgroup's CPU quota, at least
/// 1. Hyperthreads of one core count once, because they compete for its FMA units.
int usable_cores();

/// The parts of usable_cores(), for tests. `cpus` are logical CPU numbers; `system` is a folder like
/// /sys/devices/system/cpu. If it does not list the siblings of a CPU, that CPU counts as a core of its own.
int distinct_cores(const std::vector<int>& cpus, const std::string& system);
/// CPUs that a cgroup's cpu.max ("max 100000" or "150000 100000") allows, rounded up; 0 means no limit.
int quota_cores(const std::string& cpu_max);

}  // namespace lamina
