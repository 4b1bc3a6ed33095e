#pragma once

#include "lamina/ops/moe/grouped_linear.h"

namespace lamina::ops {

/// Kernel arguments. Floating tensors are contiguous and in the accumulation type; x, weight, y, dy and dx are in x's
/// dtype on a GPU, for the tensor cores, and on a CPU with bf16 dot products. Offsets are i64.
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
