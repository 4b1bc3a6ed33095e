#pragma once

#include "lamina/ops/norm/layer_norm.h"

namespace lamina::ops {

/// Kernel arguments. `scale` and `bias` are in the accumulation type (on a GPU x's dtype is allowed), or undefined.
struct LayerNormForward {
  Tensor x;
  Tensor residual;  ///< undefined: no addition
  Tensor scale;     ///< [width]
  Tensor bias;      ///< [width]
  double eps;
  Tensor h;  ///< x + residual, output if residual is defined
  Tensor y;
  Tensor mean;  ///< [rows], accumulation type
  Tensor r;     ///< [rows], 1/σ, accumulation type
};
struct LayerNormBackward {
  Tensor x;  ///< input of the norm
  Tensor scale;
  Tensor mean;
  Tensor r;
  Tensor dy;
  Tensor dh;  ///< additional gradient of h, or undefined
  Tensor dx;
  Tensor dweight;  ///< [width], accumulation type, or undefined
  Tensor dbias;    ///< [width], accumulation type, or undefined
};

namespace cpu {
void layer_norm_forward(const LayerNormForward& args);
void layer_norm_backward(const LayerNormBackward& args);
}  // namespace cpu
namespace cuda {
void layer_norm_forward(const LayerNormForward& args);
void layer_norm_backward(const LayerNormBackward& args);
}  // namespace cuda

}  // namespace lamina::ops
