#pragma once

#include "lamina/tensor/tensor.h"

namespace lamina::ops {

/// Adds one to every element of a contiguous i64 tensor in place: position counters for CUDA graph replay.
void increment_(const Tensor& counters);

namespace cpu {
void increment_(const Tensor& counters);
}  // namespace cpu
namespace cuda {
void increment_(const Tensor& counters);
}  // namespace cuda

}  // namespace lamina::ops
