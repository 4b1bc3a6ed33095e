#pragma once

#include "lamina/ops/ssm/wkv.h"

namespace lamina::ops {

/// The exponent p of an empty state: exp(p) is 0, and adding a decay to it does not overflow.
constexpr double kEmptyExponent = -1e30;

/// Kernel arguments, shaped as in wkv(). k and v keep their dtype; everything else is in the accumulation type.
struct WkvForward {
  Tensor k, v;
  Tensor decay, first;
  Tensor initial_state;  ///< undefined if not given
  Tensor y;
  Tensor last_state;
};
struct WkvBackward {
  WkvForward forward;  ///< y and last_state are not set
  Tensor dy;
  Tensor states;  ///< [3, batch, seq, channels]: buffer for a, b and p before each position
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
