#pragma once

#include <algorithm>
#include <random>

namespace lamina::testing {

/// A random number in [low, high). Same numbers as std::uniform_real_distribution of GCC's library, which computes two
/// logarithms per number if compiled by clang.
inline double uniform(std::mt19937_64& random, double low, double high) {
  return low + static_cast<double>(random()) * 0x1p-64 * (high - low);
}

inline double uniform(std::mt19937& random, double low, double high) {
  const double first = random();
  return low + (first + random() * 0x1p32) * 0x1p-64 * (high - low);
}

inline float uniform(std::mt19937_64& random, float low, float high) {
  const float below_one = std::min(static_cast<float>(random()) * 0x1p-64F, 0x1.fffffep-1F);
  return low + below_one * (high - low);
}

}  // namespace lamina::testing
