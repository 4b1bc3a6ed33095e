#pragma once

#include "lamina/tensor/tensor.h"

namespace lamina::ops {

/// How a router's logits become the weights of the chosen experts.
enum class RouterScore {
  softmax,            ///< over all experts, then choose (Switch)
  softmax_of_chosen,  ///< choose by logit, then softmax over the k chosen
  sigmoid,            ///< each expert for itself
};

struct RouteOptions {
  int64_t k = 2;
  RouterScore score = RouterScore::softmax;
  /// Divide the k weights by their sum.
  bool normalize = false;
  /// Factor on the weights, after normalising.
  double scale = 1.0;
  /// Experts come in this many groups of neighbours; only the `chosen_groups` best groups take part. A group is as good
  /// as the sum of its `group_best` best scores.
  int64_t groups = 1;
  int64_t chosen_groups = 1;
  int64_t group_best = 2;
};

struct Routing {
  Tensor weights;  ///< [tokens, k], logits' type, best first
  Tensor indices;  ///< [tokens, k] i64; of equal scores the lower index goes first
  Tensor counts;   ///< [experts] i64, how often each expert was chosen
};

/// The k best experts of each token and their weights.
///   logits  [tokens, experts]   any floating type, computed in f32 (f64 for f64)
///   bias    [experts]           added to the scores (to the logits for softmax_of_chosen) for choosing only, never in
///                               the weights and without gradient; or undefined
/// With s the scores of the chosen: w = scale · s, or scale · s / Σ s when normalised. A NaN is chosen last.
/// Shazeer et al. 2017, arXiv:1701.06538; Fedus et al. 2021, arXiv:2101.03961; groups and bias: arXiv:2412.19437.
///
/// Backward: normalised ds = scale · (dw − Σ dw·s / Σ s) / Σ s, else ds = scale · dw; then
///   softmax  dz = s · (ds − Σ ds·s), over all experts or the chosen      sigmoid  dz = ds · s · (1 − s)
/// The choice itself has no gradient.
Routing route_top_k(const Tensor& logits, const RouteOptions& options, const Tensor& bias = {});

struct RouteForward {
  Tensor logits;
  Tensor bias;  ///< [experts], accumulation type, or undefined
  RouteOptions options;
  Tensor weights;
  Tensor indices;
  Tensor counts;
};
struct RouteBackward {
  Tensor logits;
  Tensor indices;
  Tensor dweights;
  RouteOptions options;
  Tensor dlogits;
};

namespace cpu {
void route_forward(const RouteForward& args);
void route_backward(const RouteBackward& args);
}  // namespace cpu
namespace cuda {
void route_forward(const RouteForward& args);
void route_backward(const RouteBackward& args);
}  // namespace cuda

}  // namespace lamina::ops
