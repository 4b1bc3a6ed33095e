#pragma once

#include <cstddef>
#include <string>

namespace lamina::cli {

/// 45 s, 3:20, 2:05:00.
std::string duration(double seconds);

/// Columns of the terminal that standard output is; 100 where it does not say.
size_t terminal_width();

}  // namespace lamina::cli
