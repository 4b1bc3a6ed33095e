#pragma once

#include "lamina/ops/elementwise/reduce.h"

namespace lamina::ops {

/// Kernel arguments: out[o, i] = factor · Σ_k x[o, k, i] with x viewed as [outer, count, inner]. out is in the
/// accumulation type.
struct ReduceMiddle {
  Tensor x;
  int64_t outer, count, inner;
  double factor;
  Tensor out;
};

namespace cpu {
void reduce_middle(const ReduceMiddle& args);
}  // namespace cpu
namespace cuda {
void reduce_middle(const ReduceMiddle& args);
}  // namespace cuda

}  // namespace lamina::ops
