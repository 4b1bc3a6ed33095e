#pragma once

#include <cstddef>
#include <string>

namespace lamina::cli {

/// 45 s, 3:20, 2:05:00.
std::string duration(double seconds);

/// Columns of the terminal behind a descriptor, 100 where there is none.
size_t terminal_width(int descriptor);

}  // namespace lamina::cli
