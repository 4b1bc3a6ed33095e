#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

namespace lamina {

/// NumPy's legacy generator after numpy.random.seed(seed). It draws the same Mersenne Twister words in the same order,
/// so code that shuffles with NumPy can be reproduced.
class NumpyGenerator {
 public:
  explicit NumpyGenerator(uint32_t seed) : engine_(seed) {}

  uint32_t random32() { return static_cast<uint32_t>(engine_()); }

  /// A uniform integer in [0, max]: words are masked to the bits of `max`, and redrawn while they exceed it.
  uint32_t interval(uint32_t max) {
    if (max == 0) return 0;
    uint32_t mask = max;
    for (int shift = 1; shift < 32; shift *= 2) mask |= mask >> shift;
    uint32_t value = random32() & mask;
    while (value > max) value = random32() & mask;
    return value;
  }

  /// numpy.random.permutation(values), for a one-dimensional array.
  template <class T>
  std::vector<T> permutation(std::vector<T> values) {
    for (size_t i = values.size(); i-- > 1;) std::swap(values[i], values[interval(static_cast<uint32_t>(i))]);
    return values;
  }

 private:
  std::mt19937 engine_;
};

}  // namespace lamina
