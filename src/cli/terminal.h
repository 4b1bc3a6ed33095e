#pragma once

#include <cstddef>
#include <string>

namespace lamina::cli {

/// Formats a duration: "45 s", "3:20", "2:05:00".
std::string duration(double seconds);

/// Width of the terminal on a file descriptor. 100 if it is not a terminal.
size_t terminal_width(int descriptor);

}  // namespace lamina::cli
