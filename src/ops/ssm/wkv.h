#pragma once

#include "lamina/ops/ssm/selective_scan.h"

namespace lamina::ops {

/// The WKV operator of RWKV-4: an average of values, weighted by exp(key). The weights of earlier positions decay at a
/// rate per channel; the current position has a bonus `first`:
///   w = −exp(decay)    y_t = (A_{t−1} + e^{first + k_t} v_t) / (B_{t−1} + e^{first + k_t})
///   A_t = e^w A_{t−1} + e^{k_t} v_t          B_t = e^w B_{t−1} + e^{k_t}
///   k, v           [batch, seq, channels]  any floating type, the same for both; computed in f32 (f64 for f64)
///   decay, first   [channels]              any floating type
///   initial_state  [batch, 3, channels]    or undefined: a, b and p with A = a e^p and B = b e^p; zeros: empty
///   returns y [batch, seq, channels] in the dtype of k and the last state. Neither state has a gradient
/// Peng et al. 2023, arXiv:2305.13048. p is the largest exponent so far, which keeps every exponential from
/// overflowing:
///   p_t = max(w + p_{t−1}, k_t)    a_t = e^{w + p_{t−1} − p_t} a_{t−1} + e^{k_t − p_t} v_t    b_t likewise
/// For decoding, call it with seq = 1.
///
/// Backward recomputes the states into one buffer. p only scales a and b, so it has no gradient. With α and β the
/// gradients of a_t and b_t, e₁ = e^{w + p_{t−1} − p_t}, e₂ = e^{k_t − p_t}, and f₁, f₂, d the scaled terms of y_t and
/// their denominator:
///   dk = e₂ (α v + β) + f₂ (v − y) dy / d    dv = e₂ α + f₂ dy / d    dfirst = Σ f₂ (v − y) dy / d
///   dw = Σ e₁ (α a_{t−1} + β b_{t−1})        α ← e₁ α + f₁ dy / d     β ← e₁ β − f₁ y dy / d
ScanResult wkv(const Tensor& k, const Tensor& v, const Tensor& decay, const Tensor& first,
               const Tensor& initial_state = {});

}  // namespace lamina::ops
