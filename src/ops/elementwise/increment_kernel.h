#pragma once

#include "lamina/ops/elementwise/increment.h"

// Kernels of increment_().

namespace lamina::ops {

namespace cpu {
void increment_(const Tensor& counters);
}  // namespace cpu
namespace cuda {
void increment_(const Tensor& counters);
}  // namespace cuda

}  // namespace lamina::ops
