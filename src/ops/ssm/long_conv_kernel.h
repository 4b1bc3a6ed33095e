#pragma once

#include "lamina/ops/ssm/long_conv.h"

namespace lamina::ops {

/// Kernel arguments, shaped as in long_conv().
struct LongConvForward {
  Tensor u;
  Tensor kernel;  ///< accumulation type
  Tensor d;       ///< accumulation type, or undefined
  Tensor y;
};
struct LongConvBackward {
  LongConvForward forward;  ///< y is not set
  Tensor dy;
  Tensor du, dkernel, dd;  ///< undefined if not needed; dkernel and dd in the accumulation type
};

namespace cpu {
void long_conv_forward(const LongConvForward& args);
void long_conv_backward(const LongConvBackward& args);
}  // namespace cpu
namespace cuda {
void long_conv_forward(const LongConvForward& args);
void long_conv_backward(const LongConvBackward& args);
}  // namespace cuda

}  // namespace lamina::ops
