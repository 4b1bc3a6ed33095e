#pragma once

#include <string>
#include <vector>

namespace lamina {

/// Cores this process may use: processors of its affinity mask, those that share a core counted once (two threads of
/// one core fight for the units that products keep busy), and no more than its control group's share. At least 1.
int usable_cores();

/// The parts, for tests. `cpus` are numbers of processors; `system` is a folder like /sys/devices/system/cpu. Where it
/// does not say which processors share a core each counts.
int distinct_cores(const std::vector<int>& cpus, const std::string& system);
/// "max 100000" or "150000 100000", as a control group's cpu.max has it: processors, rounded up; 0: no limit.
int quota_cores(const std::string& cpu_max);

}  // namespace lamina
