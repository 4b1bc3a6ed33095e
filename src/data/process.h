#pragma once

#include <string>
#include <vector>

namespace lamina::data {

/// How a program ended, and its output.
struct ProcessResult {
  int status = 0;      ///< exit status; 127: program not found; 128 + N: ended by signal N
  std::string output;  ///< stdout and stderr together, limited to the first MiB
};
/// Runs a program from the PATH without a shell, and waits for its end. Its standard input is empty.
ProcessResult run_process(const std::vector<std::string>& arguments);

}  // namespace lamina::data
