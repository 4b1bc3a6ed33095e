#pragma once

#include "lamina/ops/norm/layer_norm.h"

namespace lamina::ops {

/// Kernel arguments. `scale` and `bias` are in the accumulation type or, on a GPU, may have x's dtype; undefined: not
/// applied.
struct LayerNormForward {
  Tensor x;
  Tensor residual;  ///< undefined: nothing is added
  Tensor scale;     ///< [width]
  Tensor bias;      ///< [width]
  double eps;
  Tensor h;  ///< output, if residual is defined: x + residual
  Tensor y;
  Tensor mean;  ///< [rows], accumulation type
  Tensor r;     ///< [rows], 1/sqrt(var + eps), accumulation type
};
struct LayerNormBackward {
  Tensor x;  ///< input of the norm (h if there was a residual)
  Tensor scale;
  Tensor mean;
  Tensor r;
  Tensor dy;
  Tensor dh;  ///< gradient of h from its other use, or undefined; added to dx
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
