#pragma once

#include "lamina/ops/ssm/gated_delta.h"

namespace lamina::ops {

/// Kernel arguments, shaped as in gated_delta(), all in the accumulation type.
struct GatedDeltaForward {
  Tensor q, k, v, g, beta;
  Tensor y;
  Tensor state;  ///< the initial state; overwritten by the last state
};
struct GatedDeltaBackward {
  Tensor q, k, v, g, beta;
  Tensor initial_state;
  Tensor dy;
  Tensor dstate;  ///< gradient of the last state; overwritten by that of the initial state
  Tensor dq, dk, dv, dg, dbeta;
  int64_t chunk;  ///< number of positions between two saved states
};

namespace cpu {
void gated_delta_forward(const GatedDeltaForward& args);
void gated_delta_backward(const GatedDeltaBackward& args);
}  // namespace cpu
namespace cuda {
void gated_delta_forward(const GatedDeltaForward& args);
void gated_delta_backward(const GatedDeltaBackward& args);
}  // namespace cuda

}  // namespace lamina::ops
