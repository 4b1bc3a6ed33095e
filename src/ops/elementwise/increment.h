#pragma once

#include "lamina/tensor/tensor.h"

namespace lamina::ops {

/// Adds one to every element of a contiguous i64 tensor in place. Decoding uses it to advance position counters in
/// device memory, so that a captured CUDA graph can be replayed.
void increment_(const Tensor& counters);

}  // namespace lamina::ops
