#pragma once

#include "lamina/tensor/tensor.h"

namespace lamina::cli {

/// Operations per second of a square product, the best of a few: what training is held against. `size` 0: one that
/// fills the device.
double product_peak(const Device& device, DType dtype = DType::f32, int64_t size = 0);

}  // namespace lamina::cli
