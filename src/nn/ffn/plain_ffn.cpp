#include "lamina/nn/ffn/plain_ffn.h"

#include "lamina/ops/linear/feed_forward_step.h"

namespace lamina::nn {

PlainFfn::PlainFfn(int64_t d_model, const arch::PlainFfn& spec, const ParameterFactory& make)
    : activation_(spec.activation),
      up_(*spec.d_ff, d_model, spec.bias, make.at("up")),
      down_(d_model, *spec.d_ff, spec.bias, make.at("down"), Linear::Ends::in_residual) {
  add_child("up", up_);
  add_child("down", down_);
}

Tensor PlainFfn::forward(const Tensor& x, ForwardContext& /*pass*/) {
  if (!has_unquantized_weight()) return down_.forward(up_.forward(x, activation_));
  return ops::feed_forward(x, {up_.weight(), up_.bias(), down_.weight(), down_.bias()}, activation_);
}

Tensor PlainFfn::forward_normed(ResidualStream& stream, const NormLayer& norm, ForwardContext& /*pass*/) {
  if (!has_unquantized_weight()) return down_.forward(up_.forward_normed(stream, norm, activation_));
  const ops::FeedForwardWeights weights{up_.weight(), up_.bias(), down_.weight(), down_.bias()};
  return stream.take(ops::feed_forward_step(stream.x, stream.branch, norm.row_norm(), weights, activation_));
}

}  // namespace lamina::nn
