#pragma once

#include "lamina/tensor/tensor.h"

namespace lamina::ops {

/// Causal convolution per channel with a kernel of any length: y[t] = Σ_{s ≤ t, s < taps} K[s] · u[t − s] + d · u[t].
///   u       [batch, seq, channels]   any floating type, computed in f32 (f64 for f64)
///   kernel  [channels, taps]         any floating type
///   d       [channels]               or undefined
///   returns [batch, seq, channels], dtype of u.
/// Computed directly, without FFT: seq²/2 products per channel if taps >= seq.
/// Backward: du[s] = Σ_t K[t − s] dy[t] + d dy[s],  dK[j] = Σ_t dy[t] u[t − j],  dd = Σ dy u
Tensor long_conv(const Tensor& u, const Tensor& kernel, const Tensor& d = {});

}  // namespace lamina::ops
