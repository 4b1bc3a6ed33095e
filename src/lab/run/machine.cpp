#include "lamina/lab/run/machine.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <fstream>

#include "lamina/base/error.h"
#include "lamina/base/threads.h"

namespace lamina::lab {
namespace {

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

}  // namespace

Machine this_machine() {
  Machine machine;
  machine.cpu = cpu_name();
  machine.cores = Threads().count();  // respects OMP_NUM_THREADS
  machine.memory_bytes = static_cast<int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE);
  utsname system{};
  if (::uname(&system) == 0) machine.system = str(system.sysname, " ", system.release, " ", system.machine);
  return machine;
}

}  // namespace lamina::lab
