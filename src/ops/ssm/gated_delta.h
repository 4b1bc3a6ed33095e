#pragma once

#include "lamina/ops/ssm/selective_scan.h"

namespace lamina::ops {

/// The gated delta rule, a form of linear attention (Gated DeltaNet). A state S [d_k, d_v] per head decays at every
/// position; then the value that it holds for the key k_t is replaced by v_t with strength beta_t:
///   S' = exp(g_t) S_{t−1}    u_t = beta_t (v_t − S'ᵀ k_t)    S_t = S' + k_t ⊗ u_t    y_t = S_tᵀ q_t
///   q, k           [batch, seq, key_heads, d_k]    any floating type, the same for both; computed in f32 (f64 for f64)
///   v              [batch, seq, heads, d_v]        dtype of q; heads % key_heads == 0, adjacent heads share q and k
///   g              [batch, seq, heads]             logarithm of the decay, any floating type
///   beta           [batch, seq, heads]             any floating type
///   initial_state  [batch, heads, d_k, d_v]        or undefined for zeros
///   returns y [batch, seq, heads, d_v] in the dtype of v and the last state [batch, heads, d_k, d_v].
/// Yang et al. 2024, arXiv:2412.06464. For decoding, call it with seq = 1.
///
/// Backward saves the states at every √seq-th position and recomputes the others. With G the gradient of S_t:
///   G ← G + q ⊗ dy    dq = S_t dy    du = Gᵀ k    dv = beta du    dbeta = du · (v − S'ᵀ k)    r = −beta du
///   dk = G u + S' r   G' = G + k ⊗ r    dg = Σ G' ∘ S'    G ← exp(g) G'
ScanResult gated_delta(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& g, const Tensor& beta,
                       const Tensor& initial_state = {});

}  // namespace lamina::ops
