#pragma once

#include "lamina/tensor/tensor.h"

namespace lamina::ops {

/// experts · Σ_e f_e · P_e, which is 1 when the tokens are spread evenly and grows up to `experts` when they are not.
/// f_e is the share of the tokens · k choices that fell on expert e, P_e the mean over the tokens of softmax(logits)_e.
///   logits   [tokens, experts]   any floating type
///   indices  [tokens, k]         i32 or i64, as route_top_k gives them
///   returns one number [1] in f32 (f64 for f64); 0 for no tokens.
/// Fedus et al. 2021, arXiv:2101.03961, eq. 4. Gradients go through P alone:
///   dlogits = p · (g − Σ g·p),  g_e = dloss · experts · f_e / tokens
Tensor balance_loss(const Tensor& logits, const Tensor& indices);

/// mean over the tokens of logsumexp(logits)², which keeps the router's logits small.
///   logits   [tokens, experts]   any floating type
///   returns one number [1] in f32 (f64 for f64); 0 for no tokens.
/// Zoph et al. 2022, arXiv:2202.08906, eq. 5. Backward: dlogits = dloss · 2 · logsumexp · softmax(logits) / tokens
Tensor router_z_loss(const Tensor& logits);

/// The two losses differ in what a row adds and in what its probabilities are pulled with.
struct RouterLossForward {
  Tensor logits;
  Tensor indices;  ///< i64, or undefined for the z loss
  Tensor shares;   ///< [experts] f_e, written for the balance loss
  Tensor loss;     ///< [1]
};
struct RouterLossBackward {
  Tensor logits;
  Tensor shares;  ///< undefined for the z loss
  Tensor dloss;
  Tensor dlogits;
};

namespace cpu {
void router_loss_forward(const RouterLossForward& args);
void router_loss_backward(const RouterLossBackward& args);
}  // namespace cpu
namespace cuda {
void router_loss_forward(const RouterLossForward& args);
void router_loss_backward(const RouterLossBackward& args);
}  // namespace cuda

}  // namespace lamina::ops
