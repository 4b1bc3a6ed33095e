#pragma once

#include "lamina/ops/ssm/rg_lru.h"

namespace lamina::ops {

constexpr double kLruRate = 8.0;
constexpr double kLruSteepest = 1000.0;  ///< limit of 1 / (2 s) in backward, see rg_lru()

/// Kernel arguments, shaped as in rg_lru(). x, input and recurrence keep their dtype; everything else is in the
/// accumulation type.
struct RgLruForward {
  Tensor x, input, recurrence;
  Tensor decay;
  Tensor initial_state, begun;  ///< undefined if not given
  Tensor y;
  Tensor last_state;
};
struct RgLruBackward {
  RgLruForward forward;    ///< y and last_state are not set
  Tensor dy, dlast_state;  ///< dlast_state may be undefined
  Tensor states;           ///< [batch, seq, channels]: buffer for the state before each position
  Tensor dx, dinput, drecurrence;
  Tensor ddecay;          ///< [channels]
  Tensor dinitial_state;  ///< undefined if not needed
};

namespace cpu {
void rg_lru_forward(const RgLruForward& args);
void rg_lru_backward(const RgLruBackward& args);
}  // namespace cpu
namespace cuda {
void rg_lru_forward(const RgLruForward& args);
void rg_lru_backward(const RgLruBackward& args);
}  // namespace cuda

}  // namespace lamina::ops
