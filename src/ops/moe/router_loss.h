#pragma once

#include "lamina/tensor/tensor.h"

namespace lamina::ops {

/// Load balancing loss experts · Σ_e f_e · P_e: 1 for a balanced load, at most `experts`. f_e is the fraction of the
/// tokens · k choices that went to expert e; P_e is the mean of softmax(logits)_e over the tokens.
///   logits   [tokens, experts]   any floating type
///   indices  [tokens, k]         i32 or i64, from route_top_k
///   returns a scalar [1] in f32 (f64 for f64); 0 if there are no tokens.
/// Fedus et al. 2021, arXiv:2101.03961, eq. 4. Gradients flow only through P:
///   dlogits = p · (g − Σ g·p),  g_e = dloss · experts · f_e / tokens
Tensor balance_loss(const Tensor& logits, const Tensor& indices);

/// Router z-loss: mean over the tokens of logsumexp(logits)², which keeps the router's logits small.
///   logits   [tokens, experts]   any floating type
///   returns a scalar [1] in f32 (f64 for f64); 0 if there are no tokens.
/// Zoph et al. 2022, arXiv:2202.08906, eq. 5. Backward: dlogits = dloss · 2 · logsumexp · softmax(logits) / tokens
Tensor router_z_loss(const Tensor& logits);

}  // namespace lamina::ops
