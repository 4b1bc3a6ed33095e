#pragma once

#include "lamina/ops/position/norm_rotary.h"
#include "lamina/ops/position/rotary_kernel.h"

namespace lamina::ops {

/// Kernel arguments. A head is a multiple of 16 bytes, rotary_dim covers whole pairs of packs (16 bytes each), the
/// tables have one angle per pair, and tokens have a constant stride.
struct NormRotaryForward {
  RotaryArgs turn;  ///< x and y are set
  Tensor scale;     ///< [head_dim], f32 or x's dtype, or undefined
  double eps;
  Tensor r;  ///< [batch · seq · heads], 1/rms, f32
};
struct NormRotaryBackward {
  RotaryArgs turn;  ///< x is set, y is not
  Tensor scale;
  Tensor r;
  Tensor dy;
  Tensor dx;
  Tensor dweight;  ///< [head_dim], f32, or undefined
};

namespace cuda {
void norm_rotary_forward(const NormRotaryForward& args);
void norm_rotary_backward(const NormRotaryBackward& args);
}  // namespace cuda

}  // namespace lamina::ops
