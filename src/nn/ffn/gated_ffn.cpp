#include "lamina/nn/ffn/gated_ffn.h"

namespace lamina::nn {

ops::GateOptions gate_options(const arch::GatedFfn& spec) {
  ops::GateOptions options{.alpha = spec.alpha, .up_offset = spec.up_offset};
  if (spec.limit) options.limit = *spec.limit;
  return options;
}

GatedFfn::GatedFfn(int64_t d_model, const arch::GatedFfn& spec, const ParameterFactory& make)
    : gate_(spec.gate),
      options_(gate_options(spec)),
      gate_up_("gate_up", {{"gate", *spec.d_ff, spec.bias}, {"up", *spec.d_ff, spec.bias}}, d_model, make),
      down_(d_model, *spec.d_ff, spec.bias, make.at("down"), Linear::Ends::in_residual) {
  add_child("", gate_up_);
  add_child("down", down_);
}

Tensor GatedFfn::forward(const Tensor& x, ForwardContext& /*pass*/) {
  return down_.forward(gate_up_.forward_gated(x, gate_, options_));
}

Tensor GatedFfn::forward_normed(ResidualStream& stream, const NormLayer& norm, ForwardContext& /*pass*/) {
  if (gate_up_.has_unquantized_weight() && down_.has_unquantized_weight()) {
    const ops::FeedForwardWeights weights{gate_up_.weight(), gate_up_.joined_bias(), down_.weight(), down_.bias()};
    return stream.take(
        ops::gated_feed_forward_step(stream.x, stream.branch, norm.row_norm(), weights, gate_, options_));
  }
  return down_.forward(gate_up_.forward_normed_gated(stream, norm, gate_, options_));
}

}  // namespace lamina::nn
