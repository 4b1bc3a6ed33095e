#pragma once

#include "lamina/tensor/tensor.h"

namespace lamina::ops {

/// Where each choice of an expert goes when the tokens are sorted by expert. A slot is a row of the sorted buffer:
/// those of expert e are [offsets[e], offsets[e + 1]), in the order of the tokens. With a capacity an expert takes the
/// first `capacity` choices and the rest are dropped. The number of slots depends on shapes and options only,
/// min(tokens · k, experts · capacity); slots from offsets[experts] on are unused and hold zeros.
struct DispatchPlan {
  int64_t tokens = 0;
  int64_t k = 0;
  int64_t slots = 0;
  Tensor offsets;  ///< [experts + 1] i64
  Tensor slot_of;  ///< [tokens, k] i64, -1 where dropped
  Tensor choice;   ///< [slots] i64: token · k + choice, -1 where unused
  Tensor kept;     ///< [tokens, k] u8: 0 where dropped
  Tensor dropped;  ///< [1] i64: how many were
};

/// ceil(factor · tokens · k / experts): the capacity that leaves room for `factor` times an even share.
int64_t expert_capacity(int64_t tokens, int64_t k, int64_t experts, double factor);

/// A counting sort of indices [tokens, k] (i32 or i64), the same for any number of threads. `capacity` 0 drops nothing.
DispatchPlan plan_dispatch(const Tensor& indices, int64_t experts, int64_t capacity = 0);

/// Rows of x [tokens, width] in the order of the plan: [slots, width], x's type.
/// Backward: dx[t] = Σ_j dy[slot_of[t, j]], summed in f32 (f64) in the order of j.
Tensor dispatch(const Tensor& x, const DispatchPlan& plan);

/// y[t] = Σ_j weights[t, j] · rows[slot_of[t, j]]; dropped choices add nothing.
///   rows     [slots, width]   any floating type, computed in f32 (f64 for f64)
///   weights  [tokens, k]      any floating type
///   returns  [tokens, width]  rows' type
/// Backward: drows[s] = weights[t, j] · dy[t],  dweights[t, j] = rows[s] · dy[t]  for s = slot_of[t, j]
Tensor combine(const Tensor& rows, const Tensor& weights, const DispatchPlan& plan);

/// to[r] = from[index[r] / divisor] · (factor[index[r]] or 1), zeros where index[r] < 0.
struct GatherRows {
  Tensor from;
  Tensor index;
  Tensor factor;  ///< accumulation type, or undefined
  int64_t divisor = 1;
  Tensor to;
};
/// to[t] = Σ_j (factor[t, j] or 1) · from[index[t, j]]; index -1 adds nothing.
struct SumRows {
  Tensor from;
  Tensor index;  ///< [tokens, k]
  Tensor factor;
  Tensor to;
};
/// dot[t, j] = from[index[t, j]] · with[t], 0 where index is -1; accumulation type.
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
