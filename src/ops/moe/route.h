#pragma once

#include "lamina/base/function_kinds.h"
#include "lamina/tensor/tensor.h"

namespace lamina::ops {

using lamina::RouterScore;

/// Options of route_top_k().
struct RouteOptions {
  int64_t k = 2;                             ///< number of experts per token
  RouterScore score = RouterScore::softmax;  ///< how logits become weights
  /// Divides the k weights by their sum.
  bool normalize = false;
  /// Factor on the weights, after normalization.
  double scale = 1.0;
  /// Experts form this many groups of consecutive experts, and only the `chosen_groups` best groups take part. The
  /// score of a group is the sum of its `group_best` highest scores.
  int64_t groups = 1;
  int64_t chosen_groups = 1;  ///< see groups
  int64_t group_best = 2;     ///< see groups
  /// Threshold of softmax_of_near, which supports neither groups nor bias nor normalization.
  double near = 0.02;
};

/// Result of route_top_k().
struct Routing {
  Tensor weights;  ///< [tokens, k], logits' dtype, in descending order of the scores
  Tensor indices;  ///< [tokens, k] i64; ties go to the lower index
  Tensor counts;   ///< [experts] i64: number of tokens that chose each expert
};

/// Chooses the top k experts of each token and computes their weights.
///   logits  [tokens, experts]   any floating type, computed in f32 (f64 for f64)
///   bias    [experts]           added to the scores (softmax_of_chosen: to the logits) to choose experts, but not
///                               part of the weights; has no gradient; optional
/// With s the scores of the chosen experts: w = scale · s, or scale · s / Σ s if normalized. A NaN score ranks last.
/// softmax_of_near: let z* be the logit of choice j, and N the experts that no earlier choice took and whose logits z
/// satisfy (z* − z) / max(|z|, z*) <= near. Then w_j = scale · exp(z*) / Σ_N exp(z).
/// Shazeer et al. 2017, arXiv:1701.06538; Fedus et al. 2021, arXiv:2101.03961; groups and bias: arXiv:2412.19437.
///
/// Backward: if normalized ds = scale · (dw − Σ dw·s / Σ s) / Σ s, else ds = scale · dw; then
///   softmax  dz = s · (ds − Σ ds·s), over all experts, the chosen ones or N   sigmoid  dz = ds · s · (1 − s)
/// The choice itself has no gradient.
Routing route_top_k(const Tensor& logits, const RouteOptions& options, const Tensor& bias = {});

}  // namespace lamina::ops
