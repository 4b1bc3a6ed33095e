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

/// Kernel arguments. Floating tensors are contiguous and in the accumulation type; on a GPU x, weight, y, dy and dx are
/// in x's dtype, for the tensor cores. Offsets are i64.
struct GroupedLinearForward {
  Tensor x;
  Tensor weight;
  Tensor offsets;
  Tensor bias;
  Tensor y;
};
struct GroupedLinearBackward {
  Tensor x;
  Tensor weight;
  Tensor offsets;
  Tensor dy;
  Tensor dx;                ///< optional
  Tensor dweight;           ///< optional
  Tensor dbias;             ///< optional
  bool accumulate = false;  ///< add to dweight instead of overwriting it
};

namespace cpu {
void check_offsets(const Tensor& offsets, int64_t slots);
void grouped_linear_forward(const GroupedLinearForward& args);
void grouped_linear_backward(const GroupedLinearBackward& args);
}  // namespace cpu
namespace cuda {
/// Does nothing: the forward kernel reports offsets that do not ascend, so that nothing is read back to the host.
inline void check_offsets(const Tensor& /*offsets*/, int64_t /*slots*/) {}
void grouped_linear_forward(const GroupedLinearForward& args);
void grouped_linear_backward(const GroupedLinearBackward& args);
}  // namespace cuda

}  // namespace lamina::ops
