#include <hwy/highway.h>

#include <cstdio>
#include <thread>

#include "lamina/base/version.h"
#include "lamina/cli/commands.h"
#include "lamina/tensor/device.h"

namespace lamina::cli {
namespace {

void print_info() {
  const int64_t targets = hwy::SupportedTargets() & HWY_TARGETS;  // supported by both CPU and build
  std::printf("lamina        %s\n", std::string(kVersion).c_str());
  std::printf("devices       cpu, meta");
  for (int i = 0; i < Device::cuda_count(); ++i) std::printf(", cuda:%d", i);
  std::printf("\n");
  std::printf("threads       %d of %u processors\n", Device::cpu().threads().count(),
              std::thread::hardware_concurrency());
  // The best SIMD target has the lowest bit.
  std::printf("vectors       %s\n", hwy::TargetName(targets & -targets));
}

}  // namespace

void add_info(CLI::App& program) {
  program.add_subcommand("info", "Version, devices, threads and the libraries in use")->callback(print_info);
}

}  // namespace lamina::cli
