#pragma once

#include "lamina/tensor/tensor.h"

namespace lamina::ops {

/// One linear layer per expert over its rows: y[r] = weight[e] · x[r] + bias[e] for r in [offsets[e], offsets[e + 1]).
/// Rows outside every slice give zeros and get zero gradients.
///   x        [slots, in]           any floating type
///   weight   [experts, out, in]    any floating type
///   offsets  [experts + 1]         i32 or i64, ascending, from 0 or more to at most slots
///   bias     [experts, out]        any floating type, or undefined
///   returns  [slots, out], x's dtype; accumulated in f32 (f64 for f64).
/// Backward, over the slice of each expert: dx = dy · weight[e],  dweight[e] = dyᵀ · x,  dbias[e] = Σ_rows dy
Tensor grouped_linear(const Tensor& x, const Tensor& weight, const Tensor& offsets, const Tensor& bias = {});

}  // namespace lamina::ops
