#pragma once

#include "lamina/ops/ssm/wkv.h"

namespace lamina::ops {

/// Exponent of an empty state: e to it is 0, and adding a decay to it does not overflow.
constexpr double kEmptyExponent = -1e30;

/// Kernel arguments. k and v keep their dtype; everything else is in the accumulation type.
struct WkvForward {
  Tensor k, v;
  Tensor decay, first;
  Tensor initial_state;  ///< undefined if not given
  Tensor y;
  Tensor last_state;
};
struct WkvBackward {
  WkvForward forward;  ///< without y and last_state
  Tensor dy;
  Tensor states;  ///< [3, batch, seq, channels]: scratch for a, b and p before each position
  Tensor dk, dv;
  Tensor ddecay, dfirst;  ///< [channels]
};

namespace cpu {
void wkv_forward(const WkvForward& args);
void wkv_backward(const WkvBackward& args);
}  // namespace cpu
namespace cuda {
void wkv_forward(const WkvForward& args);
void wkv_backward(const WkvBackward& args);
}  // namespace cuda

}  // namespace lamina::ops
