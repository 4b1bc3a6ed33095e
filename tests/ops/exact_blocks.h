#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

namespace lamina::testing {

/// Values that block quantization represents exactly: integers in [low, high] times a power of two; each block contains
/// `extreme`. So only the product can err. quantized_linear_test covers the quantization error.
inline std::vector<double> exact_values(int64_t rows, int64_t width, int64_t low, int64_t high, int64_t extreme) {
  std::vector<double> values;
  uint64_t random = 12345 + static_cast<uint64_t>(rows * 31 + width);
  for (int64_t i = 0; i < rows * width; ++i) {
    random = random * 6364136223846793005U + 1442695040888963407U;
    const int64_t column = i % width;
    const auto spread = static_cast<uint64_t>(high - low + 1);
    const auto number = column % 32 == (i / width) % 5 || width - column == 1
                            ? extreme
                            : low + static_cast<int64_t>((random >> 33U) % spread);
    values.push_back(std::ldexp(static_cast<double>(number), static_cast<int>((column / 32 + i / width) % 4) - 9));
  }
  return values;
}

}  // namespace lamina::testing
