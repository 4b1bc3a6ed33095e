#pragma once

#include "lamina/tensor/tensor.h"

namespace lamina::ops {

/// Applies each expert's linear layer to the rows of that expert (a grouped GEMM): y[r] = weight[e] · x[r] + bias[e]
/// for r in [offsets[e], offsets[e + 1]). Rows that belong to no expert give zeros and get zero gradients.
///   x        [slots, in]           any floating type
///   weight   [experts, out, in]    any floating type
///     offsets  [experts + 1]         i32 or i64, ascending, within [0, slots]
///   bias     [experts, out]        any floating type, or undefined
///   returns  [slots, out], x's dtype; accumulated in f32 (f64 for f64).
/// Backward, over the rows r of each expert e: dx = dy · weight[e],  dweight[e] = dyᵀ · x,  dbias[e] = Σ_rows dy
Tensor grouped_linear(const Tensor& x, const Tensor& weight, const Tensor& offsets, const Tensor& bias = {});

}  // namespace lamina::ops
