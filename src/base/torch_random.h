#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <span>

#include "lamina/base/dtype.h"

namespace lamina {

/// PyTorch's CPU generator after torch.manual_seed(seed): the same words in the same order, so that a seeded
/// initialisation gives the values it gives there.
class TorchGenerator {
 public:
  explicit TorchGenerator(uint64_t seed) : engine_(static_cast<uint32_t>(seed)) {}

  uint32_t random32() { return static_cast<uint32_t>(engine_()); }
  /// Two words, the first one above the second.
  uint64_t random64() {
    const uint64_t high = random32();
    return high << 32 | random32();
  }
  /// A standard normal number; the pair of Box and Muller is used up before another is drawn.
  double normal();

 private:
  std::mt19937 engine_;
  std::optional<double> next_normal_;
};

/// nn.init.uniform_(values, low, high), to the bit.
template <class T>
void torch_uniform(TorchGenerator& generator, std::span<T> values, double low, double high);

/// nn.init.normal_(values, mean, deviation), to a few ulp (its vector library rounds logarithm, sine and cosine
/// differently on different processors). From 16 values on it fills all with uniforms and turns groups of 16 into
/// normals, drawing the last 16 again when the count is no multiple of 16; below, it draws one by one in double.
template <class T>
void torch_normal(TorchGenerator& generator, std::span<T> values, double mean, double deviation);

}  // namespace lamina
