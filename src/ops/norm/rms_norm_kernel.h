#pragma once

#include "lamina/ops/norm/rms_norm.h"

namespace lamina::ops {

/// Kernel arguments. `scale` is weight + offset in the accumulation type (on a GPU x's dtype is allowed), or undefined.
struct RmsNormForward {
  Tensor x;
  Tensor residual;  ///< undefined: no addition
  Tensor scale;     ///< [width]
  double eps;
  int64_t group_size;
  Tensor h;  ///< x + residual, output if residual is defined
  Tensor y;
  Tensor r;  ///< [rows · groups], 1/rms, accumulation type
};
struct RmsNormBackward {
  Tensor x;  ///< input of the norm
  Tensor scale;
  Tensor r;
  Tensor dy;
  Tensor dh;  ///< additional gradient of h, or undefined
  int64_t group_size;
  Tensor dx;
  Tensor dweight;  ///< [width], accumulation type, or undefined
};

namespace cpu {
void rms_norm_forward(const RmsNormForward& args);
void rms_norm_backward(const RmsNormBackward& args);
}  // namespace cpu
namespace cuda {
void rms_norm_forward(const RmsNormForward& args);
void rms_norm_backward(const RmsNormBackward& args);
}  // namespace cuda

}  // namespace lamina::ops
