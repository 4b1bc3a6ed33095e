#pragma once

#include <limits>

#include "lamina/base/function_kinds.h"
#include "lamina/tensor/tensor.h"

namespace lamina::ops {

using lamina::Gate;

/// Options of gated_activation().
struct GateOptions {
  /// x interleaves gates and ups (g₀, u₀, g₁, u₁, …) instead of storing all gates before all ups.
  bool interleaved = false;
  /// The gate's function becomes act(alpha·g)/alpha: for swiglu, g·σ(alpha·g).
  double alpha = 1.0;
  /// Limits the gate to at most `limit` and `up` to [−limit, limit]. Elements outside get no gradient.
  double limit = std::numeric_limits<double>::infinity();
  /// Added to up.
  double up_offset = 0.0;
};

/// out[…, i] = act(g) · (u + up_offset) with gate g = x[…, i] and up u = x[…, n + i], the two halves of a packed
/// projection. SwiGLU and GeGLU are of this form.
///   x    [..., 2·n]  any floating type
///   out  [..., n]    x's type
/// Computed in f32 (f64 for f64). Backward, from the saved x:
///   dg = dout · (u + up_offset) · act'(g)    du = dout · act(g)
Tensor gated_activation(const Tensor& x, Gate gate, const GateOptions& options = {});

/// Throws an Error that names `op` if an option is out of range.
void check_gate(const char* op, const GateOptions& options);

}  // namespace lamina::ops
