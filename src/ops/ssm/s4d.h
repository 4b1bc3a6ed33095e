#pragma once

#include "lamina/ops/ssm/selective_scan.h"

namespace lamina::ops {

/// Parameters of a diagonal state space model (S4D) for each channel. Each of the n complex modes stands for a
/// conjugate pair. Any floating type.
struct S4dParameters {
  Tensor log_dt;      ///< [channels]       Δ = exp(log_dt)
  Tensor a_real_log;  ///< [channels, n]    a = −exp(a_real_log) + i · a_imag
  Tensor a_imag;      ///< [channels, n]
  Tensor c;           ///< [channels, n, 2] real and imaginary part
};

/// Convolution kernel of the state space model, discretized by zero-order hold (b = 1):
///   K[l] = 2 Re Σ_n c'_n · z_n^l      z = exp(Δ a)      c' = c · (exp(Δ a) − 1) / a
///   returns [channels, length], dtype of c. Parameters are discretized in f64; powers are computed in f32 (f64 for
///   f64).
/// Gu et al. 2022, arXiv:2206.11893.
///
/// Backward, with complex gradients g(x) = dL/dRe x + i dL/dIm x and f(w) = (exp(w) − 1) / w, w = Δ a:
///   g(c') = 2 conj(Σ_l dK[l] z^l)      g(w) = 2 conj(c' Σ_l l · dK[l] z^l)
///   g(c) = g(c') conj(Δ f(w))   g(φ) = g(c') conj(c)
///   g(a) = Δ g(w) + g(φ) conj(Δ² f'(w))   dΔ = Re(g(w) conj(a) + g(φ) conj(exp w))
Tensor s4d_kernel(const S4dParameters& parameters, int64_t length);

/// The state space model of s4d_kernel() as a recurrence: x_t = z · x_{t−1} + u_t,  y_t = 2 Re Σ_n c'_n · x_{t,n} + d ·
/// u_t. Equals long_conv(u, s4d_kernel(…), d) if the initial state is zero.
///   u              [batch, seq, channels]     any floating type, computed in f32 (f64 for f64)
///   d              [channels]                 or undefined
///   initial_state  [batch, channels, n, 2]    or undefined for zeros
///   returns y [batch, seq, channels] in the dtype of u and the last state [batch, channels, n, 2]
/// For decoding, call it with seq = 1. Backward saves the state before every 64 positions and recomputes the others:
///   g_t = 2 conj(c') dy_t + conj(z) g_{t+1},  du_t = Σ_n Re g_t + d dy_t,  g(z) = Σ_t g_t conj(x_{t−1})
ScanResult s4d_recurrence(const Tensor& u, const S4dParameters& parameters, const Tensor& d = {},
                          const Tensor& initial_state = {});

}  // namespace lamina::ops
