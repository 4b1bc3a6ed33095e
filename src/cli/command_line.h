#pragma once

#include <string>

namespace lamina::cli {

/// The command line with shell quoting, to store in results.
std::string command_line();

}  // namespace lamina::cli
