#pragma once

#include <cstdint>
#include <string>

namespace lamina::lab {

/// The properties of a machine that affect measured speeds.
struct Machine {
  std::string cpu;
  int cores = 0;    ///< usable cores
  int jobs = 1;     ///< concurrent runs
  int threads = 1;  ///< threads per run
  std::string device = "cpu";
  int64_t memory_bytes = 0;
  std::string system;
};

/// Describes the current machine. The caller sets jobs and threads.
Machine this_machine();

}  // namespace lamina::lab
