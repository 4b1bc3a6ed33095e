#include "lamina/base/cores.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <thread>

#include "lamina/base/error.h"

namespace lamina {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::vector<int> allowed_processors() {
  std::vector<int> cpus;
  for (int most = CPU_SETSIZE; most <= 1 << 20; most *= 4) {  // the kernel rejects masks that are too short
    const size_t bytes = CPU_ALLOC_SIZE(most);
    const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> mask(CPU_ALLOC(most), [](cpu_set_t* set) { CPU_FREE(set); });
    if (mask == nullptr) return cpus;
    CPU_ZERO_S(bytes, mask.get());
    if (::sched_getaffinity(0, bytes, mask.get()) != 0) continue;
    for (int cpu = 0; cpu < most; ++cpu) {
      if (CPU_ISSET_S(cpu, bytes, mask.get())) cpus.push_back(cpu);
    }
    return cpus;
  }
  return cpus;
}

/// Content of cpu.max in a cgroup folder, or its v1 equivalent. Empty if the folder has neither.
std::string cpu_max_of(const std::string& folder) {
  const std::string unified = first_line(folder + "/cpu.max");
  if (!unified.empty()) return unified;
  const std::string quota = first_line(folder + "/cpu.cfs_quota_us");
  return quota.empty() ? "" : quota + " " + first_line(folder + "/cpu.cfs_period_us");
}

/// The smallest quota of mount/group and all folders above it, up to the mount point. 0 if there is no quota.
int quota_along(const std::string& mount, std::string group) {
  int fewest = 0;
  while (true) {
    const int cores = quota_cores(cpu_max_of(mount + group));
    if (cores > 0) fewest = fewest == 0 ? cores : std::min(fewest, cores);
    const size_t slash = group.find_last_of('/');
    if (slash == std::string::npos) return fewest;
    group.resize(slash);
  }
}

/// Whether a comma-separated list has the word.
bool lists(const std::string& words, const std::string& word) {
  std::istringstream text(words);
  for (std::string each; std::getline(text, each, ',');) {
    if (each == word) return true;
  }
  return false;
}

}  // namespace

int distinct_cores(const std::vector<int>& cpus, const std::string& system) {
  std::set<std::string> cores;
  for (const int cpu : cpus) {
    const std::string name = "cpu" + std::to_string(cpu);
    const std::string siblings = first_line(str(system, "/", name, "/topology/thread_siblings_list"));
    cores.insert(siblings.empty() ? name : siblings);
  }
  return static_cast<int>(cores.size());
}

int quota_cores(const std::string& cpu_max) {
  std::istringstream text(cpu_max);
  double quota = 0;
  double period = 0;
  if (!(text >> quota >> period) || quota <= 0 || period <= 0) return 0;
  const double cores = quota / period;
  return cores < 1e6 ? static_cast<int>(cores) + (cores > static_cast<int>(cores) ? 1 : 0) : 0;
}

int cgroup_cores(const std::string& root) {
  std::ifstream groups(root + "/proc/self/cgroup");
  const std::string system = root + "/sys/fs/cgroup";
  int fewest = 0;
  const auto limit = [&](const std::string& mount, const std::string& group) {
    const int cores = quota_along(mount, group == "/" ? "" : group);
    if (cores > 0) fewest = fewest == 0 ? cores : std::min(fewest, cores);
  };
  // Lines "0::/group" (v2) and "4:cpu,cpuacct:/group" (v1).
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (controllers.empty()) {
      limit(system, group);
      limit(system + "/unified", group);
    } else if (lists(controllers, "cpu")) {
      limit(system + "/" + controllers, group);
      if (controllers != "cpu") limit(system + "/cpu", group);
    }
  }
  return fewest;
}

int usable_cores() {
  const std::vector<int> cpus = allowed_processors();
  int cores = cpus.empty() ? static_cast<int>(std::thread::hardware_concurrency())
                           : distinct_cores(cpus, "/sys/devices/system/cpu");
  const int quota = cgroup_cores("");
  if (quota > 0) cores = std::min(cores, quota);
  return std::max(cores, 1);
}

}  // namespace lamina
