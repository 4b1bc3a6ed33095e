#include "lamina/cli/device_option.h"

#include "lamina/base/error.h"
#include "lamina/cli/usage.h"

namespace lamina::cli {

void DeviceChoice::add_to(CLI::App& command) {
  command.add_option("--device", name, "cpu, cuda or cuda:N")->capture_default_str();
  command.add_option("--threads", threads, "Worker threads on the CPU (default: all cores); changes no result")
      ->check(at_least(1));
  command.add_flag("--deterministic", deterministic,
                   "Bit-identical results in every run on a GPU, slightly slower (the CPU is always deterministic)");
}

std::string describe(const Device& device) {
  if (device.kind() != DeviceKind::cpu) return str(device);
  const int threads = device.threads().count();
  return str("cpu, ", threads, threads == 1 ? " thread" : " threads");
}

}  // namespace lamina::cli
