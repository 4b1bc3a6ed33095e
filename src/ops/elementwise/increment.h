#pragma once

#include "lamina/tensor/tensor.h"

namespace lamina::ops {

/// Adds one to every element of a contiguous i64 tensor in place: position counters for CUDA graph replay.
void increment_(const Tensor& counters);

}  // namespace lamina::ops
