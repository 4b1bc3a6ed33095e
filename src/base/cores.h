#pragma once

#include <string>
#include <vector>

namespace lamina {

/// Number of physical cores this process may use: from its affinity mask, limited by the CPU quota of its cgroup and of
/// all cgroups above, at least 1. Hyperthreads of one core count once, because they compete for its FMA units. Cores of
/// all NUMA nodes and kinds count: threads that finish early take work from the others.
int usable_cores();

/// The parts of usable_cores(), for tests. `cpus` are logical CPU numbers; `system` is a folder like
/// /sys/devices/system/cpu. If it does not list the siblings of a CPU, that CPU counts as a core of its own.
int distinct_cores(const std::vector<int>& cpus, const std::string& system);
/// CPUs that a cgroup's cpu.max ("max 100000" or "150000 100000") allows, rounded up; 0 means no limit.
int quota_cores(const std::string& cpu_max);
/// The smallest quota of the cgroups of this process, 0 without one. `root` is the folder that holds proc and sys (""
/// for the running system). Reads cpu.max (cgroup v2) and cpu.cfs_quota_us with cpu.cfs_period_us (v1). A container may
/// not see the folder that /proc/self/cgroup names: folders above it, up to the mount point, are read in any case.
int cgroup_cores(const std::string& root);

}  // namespace lamina
