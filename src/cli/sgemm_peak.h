#pragma once

#include "lamina/tensor/device.h"

namespace lamina::cli {

/// Operations per second of a square f32 product of this size, the best of a few: what training is held against.
double sgemm_peak(const Device& device, int64_t size = 2048);

}  // namespace lamina::cli
