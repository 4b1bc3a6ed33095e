#pragma once

#include <string>

namespace lamina::cli {

/// The command line of this process with shell quoting, to be stored in results.
std::string command_line();

}  // namespace lamina::cli
