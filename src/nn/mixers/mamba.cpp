#include "lamina/nn/mixers/mamba.h"

#include <cmath>
#include <optional>

#include "lamina/nn/mixers/ssm_parameters.h"
#include "lamina/nn/mixers/state_cache.h"
#include "lamina/nn/norm.h"
#include "lamina/nn/projection.h"
#include "lamina/ops/elementwise/scaled_exp.h"
#include "lamina/ops/elementwise/split.h"
#include "lamina/ops/ssm/causal_conv1d.h"
#include "lamina/ops/ssm/selective_scan.h"

namespace lamina::nn {
namespace {

class MambaMixer final : public RecurrentMixer {
 public:
  MambaMixer(int64_t d_model, const arch::Mamba& spec, const ParameterFactory& make);

  CacheLayout cache_layout() const override {
    CacheLayout layout;
    layout.conv = Shape{*spec_.d_inner, spec_.conv - 1};
    layout.scan = Shape{*spec_.d_inner, spec_.state};
    return layout;
  }
  std::unique_ptr<LayerCache> make_cache(int64_t batch, int64_t capacity, DType dtype,
                                         const Device& device) const override;

 private:
  Tensor scan(const Tensor& x, const ForwardContext& pass, StateCache* states) const override;
  Tensor step(const Tensor& x, const ForwardContext& pass, StateCache& states) const override;
  int64_t inner_width() const override { return *spec_.d_inner; }
  Tensor project(const Tensor& y) const override { return out_.forward(y); }

  /// The input-dependent parameters: Δ (before bias and softplus), B and C.
  struct Selection {
    Tensor delta, b, c;
  };
  Selection select(const Tensor& u, const ForwardContext& pass) const;
  ops::SelectiveScanExtras extras(const Tensor& z) const {
    return {.d = d_, .z = z, .delta_bias = dt_.bias(), .delta_softplus = true};
  }

  arch::Mamba spec_;
  Linear in_;
  WeightAndBias conv_;
  Linear x_;
  std::optional<NormLayer> dt_norm_, b_norm_, c_norm_;
  WeightAndBias dt_;
  Tensor a_log_;
  Tensor d_;
  Linear out_;
};

/// Initial weight of the dt projection: uniform in ±1/sqrt(rank), which preserves the variance of its input.
Tensor step_weight(int64_t d_inner, int64_t rank, const ParameterFactory& make) {
  const double bound = 1.0 / std::sqrt(static_cast<double>(rank));
  return make.uniform("weight", {d_inner, rank}, -bound, bound);
}

MambaMixer::MambaMixer(int64_t d_model, const arch::Mamba& spec, const ParameterFactory& make)
    : spec_(spec),
      in_(2 * *spec.d_inner, d_model, spec.bias, make.at("in")),
      conv_(conv_parameters(*spec.d_inner, spec.conv, spec.conv_bias, make.at("conv"))),
      x_(*spec.dt_rank + 2 * spec.state, *spec.d_inner, false, make.at("x")),
      dt_(step_weight(*spec.d_inner, *spec.dt_rank, make.at("dt")),
          softplus_steps("bias", *spec.d_inner, spec.dt_min, spec.dt_max, make.at("dt"))),
      a_log_(log_counting("a_log", {*spec.d_inner, spec.state}, make)),
      d_(make.constant({*spec.d_inner}, 1.0)),
      out_(d_model, *spec.d_inner, spec.bias, make.at("out"), Linear::Ends::in_residual) {
  add_child("in", in_);
  add_child("conv", conv_);
  add_child("x", x_);
  if (spec.norm) {
    dt_norm_.emplace(*spec.norm, *spec.dt_rank, make.at("dt_norm"));
    b_norm_.emplace(*spec.norm, spec.state, make.at("b_norm"));
    c_norm_.emplace(*spec.norm, spec.state, make.at("c_norm"));
    add_child("dt_norm", *dt_norm_);
    add_child("b_norm", *b_norm_);
    add_child("c_norm", *c_norm_);
  }
  add_child("dt", dt_);
  add_parameter("a_log", a_log_);
  add_parameter("d", d_);
  add_child("out", out_);
}

MambaMixer::Selection MambaMixer::select(const Tensor& u, const ForwardContext& pass) const {
  const std::vector<Tensor> parts =
      ops::split(pass.shared_sum(x_.forward(u)), {*spec_.dt_rank, spec_.state, spec_.state}, -1);
  const auto normed = [](const std::optional<NormLayer>& norm, const Tensor& x) { return norm ? norm->forward(x) : x; };
  return {ops::linear(normed(dt_norm_, parts[0]), dt_.weight()), normed(b_norm_, parts[1]), normed(c_norm_, parts[2])};
}

Tensor MambaMixer::scan(const Tensor& x, const ForwardContext& pass, StateCache* states) const {
  const std::vector<Tensor> parts = ops::split(in_.forward(x), {*spec_.d_inner, *spec_.d_inner}, -1);
  const Tensor before = states == nullptr ? Tensor() : states->conv(x.dtype());
  const Tensor u = ops::causal_conv1d(parts[0], conv_.weight(), conv_.bias(), before, ops::ConvActivation::silu);
  const Selection selection = select(u, pass);
  ops::SelectiveScanExtras options = extras(parts[1]);
  if (states != nullptr) options.initial_state = states->scan(x.dtype());
  const ops::ScanResult result =
      ops::selective_scan(u, selection.delta, ops::scaled_exp(a_log_, -1.0), selection.b, selection.c, options);
  if (states != nullptr) {
    states->keep_conv(ops::causal_conv1d_state(parts[0], spec_.conv, before));
    states->keep_scan(result.last_state);
  }
  return result.y;
}

Tensor MambaMixer::step(const Tensor& x, const ForwardContext& pass, StateCache& states) const {
  const Tensor row = x.reshape({x.dim(0), x.dim(2)});
  const std::vector<Tensor> parts = ops::split(in_.forward(row), {*spec_.d_inner, *spec_.d_inner}, -1);
  Tensor conv_state = states.conv(x.dtype());
  const Tensor u =
      ops::causal_conv1d_step(parts[0], conv_state, conv_.weight(), conv_.bias(), ops::ConvActivation::silu);
  states.keep_conv(conv_state);
  const Selection selection = select(u, pass);
  Tensor scan_state = states.scan(x.dtype());
  const Tensor y = ops::selective_scan_step(u, selection.delta, ops::scaled_exp(a_log_, -1.0), selection.b, selection.c,
                                            scan_state, extras(parts[1]));
  states.keep_scan(scan_state);
  return y.reshape({x.dim(0), 1, *spec_.d_inner});
}

std::unique_ptr<LayerCache> MambaMixer::make_cache(int64_t batch, int64_t /*capacity*/, DType dtype,
                                                   const Device& device) const {
  const DType state_type = dtype == DType::f64 ? DType::f64 : DType::f32;
  return std::make_unique<StateCache>(
      Tensor::zeros({batch, *spec_.d_inner, spec_.conv - 1}, state_dtype(dtype), device),
      Tensor::zeros({batch, *spec_.d_inner, spec_.state}, state_type, device));
}

}  // namespace

std::unique_ptr<Mixer> make_mamba(int64_t d_model, const arch::Mamba& spec, const ParameterFactory& make) {
  return std::make_unique<MambaMixer>(d_model, spec, make);
}

}  // namespace lamina::nn
