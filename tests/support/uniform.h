#pragma once

#include <random>

namespace lamina::testing {

/// A random number in [low, high). The same as std::uniform_real_distribution gives with GCC's library, which computes
/// two logarithms for each number if clang compiles it.
inline double uniform(std::mt19937_64& random, double low, double high) {
  return low + static_cast<double>(random()) * 0x1p-64 * (high - low);
}

}  // namespace lamina::testing
