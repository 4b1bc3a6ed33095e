#pragma once

#include <cstdint>
#include <string>

namespace lamina::lab {

/// What measured speeds hang on.
struct Machine {
  std::string cpu;
  int cores = 0;    ///< that may be used
  int jobs = 1;     ///< runs at the same time
  int threads = 1;  ///< of each
  std::string device = "cpu";
  int64_t memory_bytes = 0;
  std::string system;
};

/// Of this process; jobs and threads are the caller's.
Machine this_machine();

}  // namespace lamina::lab
