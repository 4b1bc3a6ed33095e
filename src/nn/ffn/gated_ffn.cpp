#include "lamina/nn/ffn/gated_ffn.h"

#include "lamina/nn/recompute.h"
#include "lamina/ops/elementwise/elementwise.h"

namespace lamina::nn {

ops::GateOptions gate_options(const arch::GatedFfn& spec) {
  // gated_activation computes act(α·s·g)/α with s = gate_scale, as s · act(α'·g)/α' with α' = α·s. The caller
  // multiplies by s.
  ops::GateOptions options{.alpha = spec.alpha * spec.gate_scale, .up_offset = spec.up_offset};
  if (spec.limit) options.limit = *spec.limit;
  return options;
}

Tensor scaled(const Tensor& x, double factor) { return factor == 1.0 ? x : ops::scale(x, factor); }

GatedFfn::GatedFfn(int64_t d_model, const arch::GatedFfn& spec, const ParameterFactory& make)
    : gate_(spec.gate),
      options_(gate_options(spec)),
      gate_scale_(spec.gate_scale),
      out_scale_(spec.out_scale),
      gate_up_("gate_up", {{"gate", *spec.d_ff, spec.bias}, {"up", *spec.d_ff, spec.bias}}, d_model, make),
      down_(d_model, *spec.d_ff, spec.bias, make.at("down"), Linear::Ends::in_residual) {
  add_child("", gate_up_);
  add_child("down", down_);
}

Tensor GatedFfn::forward(const Tensor& x, ForwardContext& pass) {
  if (pass.recompute == nullptr) return finish(scaled(gate_up_.forward_gated(x, gate_, options_), gate_scale_));
  const Tensor projected = gate_up_.forward(x);
  const Tensor inner = gated(projected);
  Tensor y = finish(inner);
  recompute_in_backward(pass.recompute, inner, [this, kept = projected.detach()] { return gated(kept); });
  return y;
}

Tensor GatedFfn::gated(const Tensor& projected) const {
  return scaled(ops::gated_activation(projected, gate_, options_), gate_scale_);
}

Tensor GatedFfn::finish(const Tensor& inner) const { return scaled(down_.forward(inner), out_scale_); }

Tensor GatedFfn::forward_normed(ResidualStream& stream, const NormLayer& norm, ForwardContext& /*pass*/) {
  const bool unscaled = gate_scale_ == 1.0 && out_scale_ == 1.0;
  if (unscaled && gate_up_.has_unquantized_weight() && down_.has_unquantized_weight()) {
    const ops::FeedForwardWeights weights{gate_up_.weight(), gate_up_.packed_bias(), down_.weight(), down_.bias()};
    return stream.take(
        ops::gated_feed_forward_step(stream.x, stream.branch, norm.row_norm(), weights, gate_, options_));
  }
  return finish(scaled(gate_up_.forward_normed_gated(stream, norm, gate_, options_), gate_scale_));
}

}  // namespace lamina::nn
