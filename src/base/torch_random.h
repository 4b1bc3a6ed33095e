#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <span>

#include "lamina/base/dtype.h"

namespace lamina {

/// PyTorch's CPU generator after torch.manual_seed(seed). It draws the same words in the same order, so that seeded
/// initialization gives the same values as in PyTorch.
class TorchGenerator {
 public:
  explicit TorchGenerator(uint64_t seed) : engine_(static_cast<uint32_t>(seed)) {}

  uint32_t random32() { return static_cast<uint32_t>(engine_()); }
  /// Two 32-bit words; the first drawn is the high half.
  uint64_t random64() {
    const uint64_t high = random32();
    return high << 32 | random32();
  }
  /// A standard normal number (Box-Muller). Every second call returns the other number of the previous pair.
  double normal();

 private:
  std::mt19937 engine_;
  std::optional<double> next_normal_;
};

/// Like nn.init.uniform_(values, low, high), bit-identical.
template <class T>
void torch_uniform(TorchGenerator& generator, std::span<T> values, double low, double high);

/// Like nn.init.normal_(values, mean, deviation), to a few ulp: PyTorch's vector library rounds log, sin and cos
/// differently on different CPUs. For 16 or more values, PyTorch draws uniforms and converts them in groups of 16; if
/// the count is not a multiple of 16, it redraws the last 16. Fewer values are drawn one by one in double.
template <class T>
void torch_normal(TorchGenerator& generator, std::span<T> values, double mean, double deviation);

}  // namespace lamina
