#pragma once

#include "lamina/tensor/tensor.h"

namespace lamina::cli {

/// FLOP/s of a square matrix product, the best of several. Training speed is compared with it. `size` 0 selects a size
/// that saturates the device.
double product_peak(const Device& device, DType dtype = DType::f32, int64_t size = 0);

}  // namespace lamina::cli
