#pragma once

#include <limits>

#include "lamina/base/function_kinds.h"
#include "lamina/tensor/tensor.h"

namespace lamina::ops {

using lamina::Gate;

/// Variations of a gated activation.
struct GateOptions {
  /// x interleaves gate and up (g₀, u₀, g₁, u₁, …) instead of storing all gates before all ups.
  bool interleaved = false;
  /// The gate's function becomes act(alpha·g)/alpha: for swiglu, g·σ(alpha·g).
  double alpha = 1.0;
  /// The gate is clamped to at most `limit` and up to [−limit, limit]; clamped elements get no gradient.
  double limit = std::numeric_limits<double>::infinity();
  /// Added to up.
  double up_offset = 0.0;
};

/// out[…, i] = act(g) · (u + up_offset) with g = x[…, i] and u = x[…, n + i]: the first half of a packed projection is
/// the gate, the second half is multiplied with it.
///   x    [..., 2·n]  any floating type
///   out  [..., n]    x's type
/// Computed in f32 (f64 for f64). Backward, from the saved x:
///   dg = dout · (u + up_offset) · act'(g)    du = dout · act(g)
Tensor gated_activation(const Tensor& x, Gate gate, const GateOptions& options = {});

/// Throws an Error that names `op` if an option is out of range.
void check_gate(const char* op, const GateOptions& options);

}  // namespace lamina::ops
