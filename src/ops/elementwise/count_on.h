#pragma once

#include "lamina/tensor/tensor.h"

namespace lamina::ops {

/// Adds one to every element of a dense i64 tensor, in place: what counts on a device that repeats recorded work.
void count_on(const Tensor& counters);

namespace cpu {
void count_on(const Tensor& counters);
}  // namespace cpu
namespace cuda {
void count_on(const Tensor& counters);
}  // namespace cuda

}  // namespace lamina::ops
