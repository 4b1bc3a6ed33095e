#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "lamina/tensor/device.h"

namespace lamina::cli {

/// Device options of a command: --device, --threads and --deterministic.
struct DeviceChoice {
  std::string name = "cpu";
  int threads = 0;
  bool deterministic = false;

  void add_to(CLI::App& command);
  Device open() const { return Device::named(name, threads, deterministic); }
};

/// "cpu, 2 threads" or "cuda:0".
std::string describe(const Device& device);

}  // namespace lamina::cli
