#pragma once

#include <string>
#include <vector>

namespace lamina {

/// Number of physical cores that this process may use, at least 1. Taken from its affinity mask and limited by the CPU
/// quota of its cgroup and all cgroups above. Hyperthreads of one core count once, because they compete for its FMA
/// units. All NUMA nodes and kinds of cores count: threads that finish early take work from the others.
int usable_cores();

/// The parts of usable_cores(), for tests. `cpus` are logical CPU numbers; `system` is a folder like
/// /sys/devices/system/cpu. A CPU whose siblings are not listed there counts as a core of its own.
int distinct_cores(const std::vector<int>& cpus, const std::string& system);
/// CPUs that a cgroup's cpu.max ("max 100000" or "150000 100000") allows, rounded up; 0 means no limit.
int quota_cores(const std::string& cpu_max);
/// The smallest quota among the cgroups of this process, in CPUs; 0 if there is none. `root` is the folder that holds
/// proc and sys ("" for the running system). Reads cpu.max (cgroup v2), or cpu.cfs_quota_us and cpu.cfs_period_us (v1).
/// A container may not see the folder that /proc/self/cgroup names; the folders above it, up to the mount point, are
/// read in any case.
int cgroup_cores(const std::string& root);

}  // namespace lamina
