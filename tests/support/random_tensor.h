#pragma once

#include <random>
#include <vector>

#include "lamina/tensor/tensor.h"
#include "support/uniform.h"

namespace lamina::testing {

/// Random values in [-1, 1), on a CPU device with two threads.
inline Tensor random_tensor(const Shape& shape, uint64_t seed, DType dtype) {
  std::mt19937_64 random(seed);
  std::vector<double> values(static_cast<size_t>(shape.numel()));
  for (double& value : values) value = uniform(random, -1.0, 1.0);
  return Tensor::from(values, shape, Device::cpu(2)).to(dtype);
}

}  // namespace lamina::testing
