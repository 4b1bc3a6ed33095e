#include "lamina/nn/ffn/plain_ffn.h"

#include <algorithm>
#include <cmath>

#include "lamina/nn/recompute.h"
#include "lamina/ops/linear/feed_forward_step.h"

namespace lamina::nn {
namespace {

/// Inverse of softplus: returns x with softplus(x) = y.
double inverse_softplus(double y) { return std::log(std::expm1(std::max(y, 1e-3))); }

}  // namespace

LearnedXielu::LearnedXielu(const arch::Xielu& spec, const ParameterFactory& make)
    : options_{spec.beta, spec.eps},
      alpha_p_(make.constant({1}, inverse_softplus(0.8))),
      alpha_n_(make.constant({1}, inverse_softplus(0.8 - spec.beta))) {
  add_parameter("alpha_p", alpha_p_);
  add_parameter("alpha_n", alpha_n_);
}

PlainFfn::PlainFfn(int64_t d_model, const arch::PlainFfn& spec, const ParameterFactory& make)
    : activation_(spec.activation),
      up_(*spec.d_ff, d_model, spec.bias, make.at("up")),
      down_(d_model, *spec.d_ff, spec.bias, make.at("down"), Linear::Ends::in_residual) {
  add_child("up", up_);
  if (spec.xielu) {
    xielu_.emplace(*spec.xielu, make.at("xielu"));
    add_child("xielu", *xielu_);
  }
  add_child("down", down_);
}

Tensor PlainFfn::activated(const Tensor& inner, Tape* recompute) const {
  const Tensor hidden = xielu_->forward(inner);
  Tensor y = down_.forward(hidden);
  recompute_in_backward(recompute, hidden, [this, kept = inner.detach()] { return xielu_->forward(kept); });
  return y;
}

Tensor PlainFfn::forward(const Tensor& x, ForwardContext& pass) {
  if (xielu_) return activated(up_.forward(x), pass.recompute);
  if (!has_unquantized_weight()) return down_.forward(up_.forward(x, activation_));
  return ops::feed_forward(
      x, {up_.weight(), up_.bias(), down_.weight(), down_.bias()}, activation_,
      pass.recompute == nullptr ? ops::HiddenActivations::kept : ops::HiddenActivations::recomputed);
}

Tensor PlainFfn::forward_normed(ResidualStream& stream, const NormLayer& norm, ForwardContext& /*pass*/) {
  if (xielu_) return activated(up_.forward_normed(stream, norm), nullptr);
  if (!has_unquantized_weight()) return down_.forward(up_.forward_normed(stream, norm, activation_));
  const ops::FeedForwardWeights weights{up_.weight(), up_.bias(), down_.weight(), down_.bias()};
  return stream.take(ops::feed_forward_step(stream.x, stream.branch, norm.row_norm(), weights, activation_));
}

}  // namespace lamina::nn
