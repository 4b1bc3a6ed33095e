#pragma once

#include "lamina/ops/moe/dispatch.h"

namespace lamina::ops {

/// Kernel arguments: to[r] = from[index[r] / divisor] · (factor[index[r]] or 1), or zeros if index[r] < 0.
struct GatherRows {
  Tensor from;
  Tensor index;
  Tensor factor;  ///< accumulation type, or undefined
  int64_t divisor = 1;
  Tensor to;
};
/// Kernel arguments: to[t] = Σ_j (factor[t, j] or 1) · from[index[t, j]]; an index of −1 adds nothing.
struct SumRows {
  Tensor from;
  Tensor index;  ///< [tokens, k]
  Tensor factor;
  Tensor to;
};
/// Kernel arguments: dot[t, j] = from[index[t, j]] · with[t], or 0 if the index is −1; in the accumulation type.
struct DotRows {
  Tensor from;
  Tensor with;
  Tensor index;
  Tensor dot;
};

namespace cpu {
void plan_dispatch(const Tensor& indices, int64_t capacity, const DispatchPlan& plan);
void gather_rows(const GatherRows& args);
void sum_rows(const SumRows& args);
void dot_rows(const DotRows& args);
}  // namespace cpu
namespace cuda {
void plan_dispatch(const Tensor& indices, int64_t capacity, const DispatchPlan& plan);
void gather_rows(const GatherRows& args);
void sum_rows(const SumRows& args);
void dot_rows(const DotRows& args);
}  // namespace cuda

}  // namespace lamina::ops
