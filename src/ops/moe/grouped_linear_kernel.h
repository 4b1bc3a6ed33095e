#pragma once

#include "lamina/ops/moe/grouped_linear.h"

namespace lamina::ops {

/// Kernel arguments, shaped as in grouped_linear(); all contiguous, offsets in i64. x, weight, y, dy and dx have x's
/// dtype if the kernel multiplies it directly, else the accumulation type. GPUs multiply it directly, and CPUs with
/// bf16 dot products. The other floating tensors are in the accumulation type.
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
/// Does nothing. On a GPU the forward kernel reports offsets that do not ascend, which saves a copy to the host.
inline void check_offsets(const Tensor& /*offsets*/, int64_t /*slots*/) {}
void grouped_linear_forward(const GroupedLinearForward& args);
void grouped_linear_backward(const GroupedLinearBackward& args);
}  // namespace cuda

}  // namespace lamina::ops
