#pragma once

#include <limits>

#include "lamina/ops/ssm/selective_scan.h"

namespace lamina::ops {

/// Optional arguments of ssd_scan; tensors are undefined if not used.
struct SsdExtras {
  Tensor d;                  ///< [heads]: d · x is added to y
  Tensor dt_bias;            ///< [heads], added to dt
  Tensor initial_state;      ///< [batch, heads, head_dim, n]; undefined: zeros
  bool dt_softplus = false;  ///< apply softplus to dt + dt_bias
  /// Lower limit of Δ.
  double dt_min = 0.0;
  double dt_max = std::numeric_limits<double>::infinity();  ///< upper limit of Δ
  /// Chunk length: number of positions that are computed as one matrix product. It changes results only by rounding.
  int64_t chunk_size = 64;
};

/// State space duality (SSD, Mamba-2): a linear recurrence with one decay per head. It is computed as matrix products
/// within chunks of the sequence and a recurrence across chunks:
///   Δ_t = clamp(softplus(dt_t + dt_bias))   H_t = exp(Δ_t · a) · H_{t−1} + Δ_t · x_t ⊗ b_t   y_t = H_t · c_t + d · x_t
///   x     [batch, seq, heads, head_dim]   any floating type, computed in f32 (f64 for f64)
///   dt    [batch, seq, heads]             dtype of x
///   a     [heads]                         any floating type, negative
///   b, c  [batch, seq, groups, n]         dtype of x; heads % groups == 0, adjacent heads share a group
///   returns y [batch, seq, heads, head_dim] in the dtype of x and the last state [batch, heads, head_dim, n].
/// Dao & Gu 2024, arXiv:2405.21060. With s_t the running sum of Δ · a in a chunk, H the state before the chunk and Δx =
/// Δ · x:
///   y_t = Σ_{s≤t} (c_t·b_s) exp(s_t − s_s) Δx_s + exp(s_t) H c_t + d x_t
///   H' = exp(s_end) H + Σ_s exp(s_end − s_s) Δx_s ⊗ b_s
///
/// Backward: forward saves H before every chunk; backward processes the chunks from the last to the first. With M = (c
/// bᵀ) ∘ exp(s_t − s_s):
///   dΔx = Mᵀ dy + exp(s_end − s) ∘ (b dH'ᵀ)        dH = exp(s_end) dH' + (exp(s) ∘ dy)ᵀ c
///   dc = G b + (exp(s) ∘ dy) H    db = Gᵀ c + exp(s_end − s) ∘ (Δx dH')    G = (dy Δxᵀ) ∘ exp(s_t − s_s)
/// The gradient of Δ · a is the gradient of s, summed from the end of the chunk.
ScanResult ssd_scan(const Tensor& x, const Tensor& dt, const Tensor& a, const Tensor& b, const Tensor& c,
                    const SsdExtras& extras = {});

/// ssd_scan() of one position, for decoding: x [batch, heads, head_dim], dt [batch, heads], b, c [batch, groups, n].
/// Updates `state` [batch, heads, head_dim, n] (accumulation type) in place. extras.initial_state must be undefined. No
/// gradient.
Tensor ssd_step(const Tensor& x, const Tensor& dt, const Tensor& a, const Tensor& b, const Tensor& c, Tensor& state,
                const SsdExtras& extras = {});

}  // namespace lamina::ops
