#pragma once

#include "lamina/ops/ssm/selective_scan.h"

namespace lamina::ops {

/// Real-gated linear recurrent unit (RG-LRU): a linear recurrence per channel, whose decay a gate modulates at every
/// position:
///   r_t = σ(recurrence_t)   i_t = σ(input_t)   log a_t = −8 · r_t · softplus(decay)
///   h_t = a_t · h_{t−1} + sqrt(1 − a_t²) · i_t · x_t      y_t = h_t
/// At the first position of a sequence the square root is replaced by 1.
///   x, input, recurrence  [batch, seq, channels]  any floating type, the same for all; computed in f32 (f64 for f64)
///   decay                 [channels]              any floating type
///   initial_state         [batch, channels]       or undefined for zeros
///   begun                 [batch]                 nonzero if positions precede this call; undefined: none do
///   returns y [batch, seq, channels] in the dtype of x and the last state [batch, channels]. begun has no gradient
/// De et al. 2024, arXiv:2402.19427. For decoding, call it with seq = 1.
///
/// Backward recomputes the states of all positions into one buffer [batch, seq, channels]:
///   g_t = dy_t + a_{t+1} g_{t+1}    dx = g s i    di = g s x    with s = sqrt(1 − a²)
///   dlog a = g (a h_{t−1} − i x a² / s)    dr = −8 softplus(decay) dlog a    ddecay = −8 σ(decay) Σ r dlog a
/// 1 / (2 s) diverges near a = 1 and is limited to 1000.
ScanResult rg_lru(const Tensor& x, const Tensor& input, const Tensor& recurrence, const Tensor& decay,
                  const Tensor& initial_state = {}, const Tensor& begun = {});

}  // namespace lamina::ops
