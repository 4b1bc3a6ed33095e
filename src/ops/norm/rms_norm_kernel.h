#pragma once

#include "lamina/ops/norm/rms_norm.h"

namespace lamina::ops {

/// Kernel arguments. `scale` is weight + offset in the accumulation type or, on a GPU, may have x's dtype; undefined:
/// 1.
struct RmsNormForward {
  Tensor x;
  Tensor residual;  ///< undefined: nothing is added
  Tensor scale;     ///< [width]
  double eps;
  int64_t group_size;
  Tensor h;  ///< output, if residual is defined: x + residual
  Tensor y;
  Tensor r;  ///< [rows · groups], 1/rms, accumulation type
};
struct RmsNormBackward {
  Tensor x;  ///< input of the norm (h if there was a residual)
  Tensor scale;
  Tensor r;
  Tensor dy;
  Tensor dh;  ///< gradient of h from its other use, or undefined; added to dx
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
