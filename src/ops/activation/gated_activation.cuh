#pragma once

// A gated unit, act(gate) · up, in f32 for results of type T.

#include "lamina/ops/activation/activation.cuh"
#include "lamina/ops/activation/gated_activation.h"

namespace lamina::ops::cuda {

/// GateOptions in f32.
struct GateUnit {
  float alpha, inverse_alpha, limit, offset, scaled_offset;
  bool interleaved;

  explicit GateUnit(const GateOptions& options)
      : alpha(static_cast<float>(options.alpha)),
        inverse_alpha(static_cast<float>(1.0 / options.alpha)),
        limit(static_cast<float>(options.limit)),
        offset(static_cast<float>(options.up_offset)),
        scaled_offset(static_cast<float>(options.up_offset / options.alpha)),
        interleaved(options.interleaved) {}
};

struct GateUp {
  float gate;
  float up;
};

/// act(gate) · (up + up_offset) with all options applied.
template <class Function>
__device__ inline float gate_value(const GateUnit& unit, Function function, GateUp in) {
  const float gate = lamina::cuda::min_nan(in.gate, unit.limit);
  const float up = lamina::cuda::max_nan(lamina::cuda::min_nan(in.up, unit.limit), -unit.limit);
  return function.both(unit.alpha * gate).value * fmaf(up, unit.inverse_alpha, unit.scaled_offset);
}

/// Selects the gate's activation at run time. The branch is uniform: all threads take the same path.
template <class T>
struct AnyGate {
  Gate gate;
  __device__ ValueSlope both(float x) const {
    switch (gate) {
      case Gate::glu: return Sigmoid<T>::both(x);
      case Gate::reglu: return Relu<T>::both(x);
      case Gate::geglu: return Gelu<T>::both(x);
      case Gate::geglu_tanh: return GeluTanh<T>::both(x);
      case Gate::swiglu: return Silu<T>::both(x);
      case Gate::liglu: break;
    }
    return Identity<T>::both(x);
  }
};

}  // namespace lamina::ops::cuda
