#pragma once

#include "lamina/tensor/tensor.h"

namespace lamina::ops {

/// Assigns each (token, expert) choice of a router a slot: a row of a buffer that is sorted by expert. The slots of
/// expert e are [offsets[e], offsets[e + 1]), in token order. With a capacity, an expert takes its first `capacity`
/// choices; the rest are dropped. The number of slots depends only on shapes and options: min(tokens · k, experts ·
/// capacity). Slots from offsets[experts] on are unused and hold zeros.
struct DispatchPlan {
  int64_t tokens = 0;  ///< number of tokens
  int64_t k = 0;       ///< experts chosen per token
  int64_t slots = 0;   ///< number of rows of the sorted buffer
  Tensor offsets;      ///< [experts + 1] i64
  Tensor slot_of;      ///< [tokens, k] i64: slot of each choice, −1 if dropped
  Tensor choice;       ///< [slots] i64: token · k + j for choice j of a token, −1 if the slot is unused
  Tensor kept;         ///< [tokens, k] u8: 1 if the choice has a slot, 0 if dropped
  Tensor dropped;      ///< [1] i64: number of dropped choices
};

/// ceil(factor · tokens · k / experts), where tokens · k / experts is the number of slots per expert under a balanced
/// load.
int64_t expert_capacity(int64_t tokens, int64_t k, int64_t experts, double factor);

/// Makes the plan for indices [tokens, k] (i32 or i64) with a counting sort. The result does not depend on the number
/// of threads. `capacity` 0: no limit.
DispatchPlan plan_dispatch(const Tensor& indices, int64_t experts, int64_t capacity = 0);

/// Gathers the rows of x [tokens, width] into the plan's slots: [slots, width], x's dtype.
/// Backward: dx[t] = Σ_j dy[slot_of[t, j]], summed in f32 (f64 for f64) in order of j.
Tensor dispatch(const Tensor& x, const DispatchPlan& plan);

/// Combines the experts' results per token: y[t] = Σ_j weights[t, j] · rows[slot_of[t, j]]. Dropped choices add
/// nothing.
///   rows     [slots, width]   any floating type, computed in f32 (f64 for f64)
///   weights  [tokens, k]      any floating type
///   returns  [tokens, width]  rows' type
/// Backward: drows[s] = weights[t, j] · dy[t],  dweights[t, j] = rows[s] · dy[t]  for s = slot_of[t, j]
Tensor combine(const Tensor& rows, const Tensor& weights, const DispatchPlan& plan);

}  // namespace lamina::ops
