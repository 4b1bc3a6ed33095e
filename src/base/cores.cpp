#include "lamina/base/cores.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
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
  cpu_set_t mask;
  CPU_ZERO(&mask);
  std::vector<int> cpus;
  if (::sched_getaffinity(0, sizeof mask, &mask) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &mask)) cpus.push_back(cpu);
  }
  return cpus;
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

int usable_cores() {
  const std::vector<int> cpus = allowed_processors();
  int cores = cpus.empty() ? static_cast<int>(std::thread::hardware_concurrency())
                           : distinct_cores(cpus, "/sys/devices/system/cpu");
  const int quota = quota_cores(first_line("/sys/fs/cgroup/cpu.max"));
  if (quota > 0) cores = std::min(cores, quota);
  return std::max(cores, 1);
}

}  // namespace lamina
