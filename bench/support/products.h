#pragma once

#include <cstdint>
#include <vector>

#include "lamina/tensor/tensor.h"

namespace lamina::bench {

/// Uniform values in [low, high).
std::vector<float> random_floats(int64_t count, uint32_t seed, float low = -1, float high = 1);
Tensor random_tensor(const Shape& shape, const Device& device, uint32_t seed = 1, float low = -1, float high = 1);

/// x·Wᵀ and its two gradients as plain oneDNN products.
struct PlainProducts {
  int64_t rows, in, out;
  std::vector<float> x, w, y, dx, dw;
  PlainProducts(int64_t rows, int64_t in, int64_t out);
  void forward();
  void backward();
  /// FLOPs of all three products.
  double flops() const { return 6.0 * static_cast<double>(rows * in * out); }
};

}  // namespace lamina::bench
