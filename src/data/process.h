#pragma once

#include <string>
#include <vector>

namespace lamina::data {

struct ProcessResult {
  int status = 0;      ///< the exit status; 127 where there is no such program, 128 + the signal where one ended it
  std::string output;  ///< what it printed, errors too; the first MiB
};
/// Runs a program of the PATH to its end, without a shell. It reads nothing.
ProcessResult run_process(const std::vector<std::string>& arguments);

}  // namespace lamina::data
