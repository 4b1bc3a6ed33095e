#pragma once

#include "lamina/ops/activation/gated_activation.h"
#include "ops/activation_oracle.h"
#include "support/array.h"

namespace lamina::testing {

inline ops::Activation activation_of(ops::Gate gate) {
  using ops::Activation;
  using ops::Gate;
  switch (gate) {
    case Gate::glu: return Activation::sigmoid;
    case Gate::reglu: return Activation::relu;
    case Gate::geglu: return Activation::gelu;
    case Gate::geglu_tanh: return Activation::gelu_tanh;
    case Gate::swiglu: return Activation::silu;
    default: return Activation::none;
  }
}

/// act(gate) · (up + up_offset); x holds gate and up in its last dimension.
template <class S>
Array<S> gated_oracle(const Array<S>& x, ops::Gate gate_kind, const ops::GateOptions& options) {
  Shape shape = x.shape;
  const int64_t n = shape[-1] / 2;
  shape[-1] = n;
  Array<S> out(shape);
  const S alpha = S(options.alpha);
  const S limit = S(options.limit);
  for (int64_t j = 0; j < out.numel(); ++j) {
    const int64_t row = j / n * 2 * n;
    S gate = x[options.interleaved ? 2 * j : row + j % n];
    S up = x[options.interleaved ? 2 * j + 1 : row + n + j % n];
    if (gate > limit) gate = limit;
    if (up > limit) up = limit;
    if (up < -limit) up = -limit;
    out[j] = activation_oracle(activation_of(gate_kind), alpha * gate) / alpha * (up + S(options.up_offset));
  }
  return out;
}

}  // namespace lamina::testing
