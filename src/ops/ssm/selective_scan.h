#pragma once

#include "lamina/tensor/tensor.h"

namespace lamina::ops {

/// Optional arguments of a selective scan; undefined if not used.
struct SelectiveScanExtras {
  Tensor d;                     ///< [channels]: d · u is added to y
  Tensor z;                     ///< [batch, seq, channels], dtype of u: y is multiplied by silu(z)
  Tensor delta_bias;            ///< [channels], added to delta
  Tensor initial_state;         ///< [batch, channels, n]; undefined: zeros
  bool delta_softplus = false;  ///< apply softplus to delta + delta_bias
};

/// Result of a scan.
struct ScanResult {
  Tensor y;           ///< the output
  Tensor last_state;  ///< accumulation type; the initial_state of the next call
};

/// Selective state space model (Mamba): a linear recurrence per channel, whose step size, input weights and output
/// weights depend on the position:
///   Δ_t = softplus(delta_t + delta_bias)      h_t = exp(Δ_t · a) · h_{t−1} + Δ_t · b_t · u_t
///   y_t = (c_t · h_t + d · u_t) · silu(z_t)
///   u, delta  [batch, seq, channels]   any floating type, the same for both; computed in f32 (f64 for f64)
///   a         [channels, n]            any floating type
///   b, c      [batch, seq, n]          dtype of u
///   returns y [batch, seq, channels] in the dtype of u and the last state [batch, channels, n].
/// Gu & Dao 2023, arXiv:2312.00752. Time and memory are linear in seq; no buffer [seq, channels, n] is needed.
///
/// Backward: forward saves the state before every 64 positions; backward recomputes 64 states at a time and runs
/// backwards over them:
///   g_t = c_t · dy'_t + exp(Δ_{t+1} a) · g_{t+1},  dy' = dy · silu(z)
///   dΔ_t = Σ_n g_t (a · exp(Δ_t a) · h_{t−1} + b_t u_t)    da = Σ_t g_t Δ_t exp(Δ_t a) h_{t−1}
///   db_t = Σ_channels g_t Δ_t u_t    dc_t = Σ_channels dy'_t h_t    du_t = Δ_t Σ_n g_t b_t + d · dy'_t
ScanResult selective_scan(const Tensor& u, const Tensor& delta, const Tensor& a, const Tensor& b, const Tensor& c,
                          const SelectiveScanExtras& extras = {});

/// selective_scan() of one position, for decoding: u, delta, z [batch, channels], b, c [batch, n]. Updates `state`
/// [batch, channels, n] (accumulation type) in place. extras.initial_state must be undefined. No gradient.
Tensor selective_scan_step(const Tensor& u, const Tensor& delta, const Tensor& a, const Tensor& b, const Tensor& c,
                           Tensor& state, const SelectiveScanExtras& extras = {});

}  // namespace lamina::ops
