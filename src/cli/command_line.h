#pragma once

#include <string>

namespace lamina::cli {

/// The command line again, for results, words quoted where a shell wants it.
std::string command_line();

}  // namespace lamina::cli
