#include "lamina/nn/mixers/mamba2.h"

#include <limits>
#include <optional>

#include "lamina/nn/mixers/ssm_parameters.h"
#include "lamina/nn/mixers/state_cache.h"
#include "lamina/nn/norm.h"
#include "lamina/nn/projection.h"
#include "lamina/ops/activation/activation.h"
#include "lamina/ops/elementwise/elementwise.h"
#include "lamina/ops/elementwise/scaled_exp.h"
#include "lamina/ops/elementwise/split.h"
#include "lamina/ops/ssm/causal_conv1d.h"
#include "lamina/ops/ssm/ssd_scan.h"

namespace lamina::nn {
namespace {

class Mamba2Mixer final : public RecurrentMixer {
 public:
  Mamba2Mixer(int64_t d_model, const arch::Mamba2& spec, const ParameterFactory& make);

  CacheLayout cache_layout() const override {
    CacheLayout layout;
    layout.conv = Shape{conv_width(), spec_.conv - 1};
    layout.scan = Shape{heads(), spec_.head_dim, spec_.state};
    return layout;
  }
  std::unique_ptr<LayerCache> make_cache(int64_t batch, int64_t capacity, DType dtype,
                                         const Device& device) const override;

 private:
  Tensor scan(const Tensor& x, const ForwardContext& pass, StateCache* states) const override;
  Tensor step(const Tensor& x, const ForwardContext& pass, StateCache& states) const override;
  int64_t inner_width() const override { return *spec_.d_inner; }
  Tensor project(const Tensor& y) const override { return out_.forward(y); }
  /// A factor for every channel of the input projection.
  const Tensor& in_scales(const Device& device, DType dtype) const;
  /// Input projection of x, split into z, the input of the convolution, and Δ before bias and softplus.
  std::vector<Tensor> project_in(const Tensor& x) const;
  /// Applies norm and gate to y [..., d_inner], in the order of arch::GatedNorm.
  Tensor gated_norm(const Tensor& y, const Tensor& z) const;
  ops::SsdExtras extras() const;

  int64_t heads() const { return *spec_.d_inner / spec_.head_dim; }
  int64_t shared() const { return spec_.groups * spec_.state; }  ///< combined width of all groups' b (and of c)
  int64_t conv_width() const { return *spec_.d_inner + 2 * shared(); }

  arch::Mamba2 spec_;
  Linear in_;
  WeightAndBias conv_;
  Tensor dt_bias_;
  Tensor a_log_;
  Tensor d_;
  mutable Tensor in_scales_;  ///< cached in the type and on the device that used it last
  std::optional<NormLayer> norm_;
  Linear out_;
};

arch::Norm norm_of(const arch::Mamba2& spec) {
  return arch::RmsNorm{.eps = spec.norm_eps, .group_size = *spec.d_inner / spec.norm_groups};
}

Mamba2Mixer::Mamba2Mixer(int64_t d_model, const arch::Mamba2& spec, const ParameterFactory& make)
    : spec_(spec),
      in_(*spec.d_inner + conv_width() + heads(), d_model, spec.bias, make.at("in")),
      conv_(conv_parameters(conv_width(), spec.conv, spec.conv_bias, make.at("conv"))),
      dt_bias_(softplus_steps("dt_bias", heads(), spec.dt_min, spec.dt_max, make)),
      a_log_(log_counting("a_log", {heads()}, make)),
      d_(make.constant({heads()}, 1.0)),
      out_(d_model, *spec.d_inner, spec.bias, make.at("out"), Linear::Ends::in_residual) {
  add_child("in", in_);
  add_child("conv", conv_);
  add_parameter("dt_bias", dt_bias_);
  add_parameter("a_log", a_log_);
  add_parameter("d", d_);
  if (spec.norm != arch::GatedNorm::none) {
    norm_.emplace(norm_of(spec), *spec.d_inner, make.at("norm"));
    add_child("norm", *norm_);
  }
  add_child("out", out_);
}

const Tensor& Mamba2Mixer::in_scales(const Device& device, DType dtype) const {
  if (in_scales_.defined() && in_scales_.device() == device && in_scales_.dtype() == dtype) return in_scales_;
  const int64_t widths[] = {*spec_.d_inner, *spec_.d_inner, shared(), shared(), heads()};
  std::vector<double> factors;
  for (size_t i = 0; i < spec_.in_scales.size(); ++i) {
    factors.insert(factors.end(), static_cast<size_t>(widths[i]), spec_.in_scales[i]);
  }
  const auto count = static_cast<int64_t>(factors.size());
  return in_scales_ = Tensor::from(factors, {count}, device).to(dtype);
}

std::vector<Tensor> Mamba2Mixer::project_in(const Tensor& x) const {
  Tensor projected = in_.forward(x);
  if (!spec_.in_scales.empty()) projected = ops::mul(projected, in_scales(projected.device(), projected.dtype()));
  return ops::split(projected, {*spec_.d_inner, conv_width(), heads()}, -1);
}

Tensor Mamba2Mixer::gated_norm(const Tensor& y, const Tensor& z) const {
  const Tensor gate = ops::activation(z, ops::Activation::silu);
  if (!norm_) return ops::mul(y, gate);
  if (spec_.norm == arch::GatedNorm::before_gate) return ops::mul(norm_->forward(y), gate);
  return norm_->forward(ops::mul(y, gate));
}

ops::SsdExtras Mamba2Mixer::extras() const {
  return {.d = d_,
          .dt_bias = dt_bias_,
          .dt_softplus = true,
          .dt_min = spec_.dt_low,
          .dt_max = spec_.dt_high.value_or(std::numeric_limits<double>::infinity()),
          .chunk_size = spec_.chunk};
}

Tensor Mamba2Mixer::scan(const Tensor& x, const ForwardContext& /*pass*/, StateCache* states) const {
  const int64_t batch = x.dim(0);
  const int64_t seq = x.dim(1);
  const std::vector<Tensor> parts = project_in(x);
  const Tensor before = states == nullptr ? Tensor() : states->conv(x.dtype());
  const Tensor convolved =
      ops::causal_conv1d(parts[1], conv_.weight(), conv_.bias(), before, ops::ConvActivation::silu);
  const std::vector<Tensor> ubc = ops::split(convolved, {*spec_.d_inner, shared(), shared()}, -1);
  const Shape mixed{batch, seq, spec_.groups, spec_.state};
  ops::SsdExtras options = extras();
  if (states != nullptr) options.initial_state = states->scan(x.dtype());
  const ops::ScanResult result =
      ops::ssd_scan(ubc[0].reshape({batch, seq, heads(), spec_.head_dim}), parts[2], ops::scaled_exp(a_log_, -1.0),
                    ubc[1].reshape(mixed), ubc[2].reshape(mixed), options);
  if (states != nullptr) {
    states->keep_conv(ops::causal_conv1d_state(parts[1], spec_.conv, before));
    states->keep_scan(result.last_state);
  }
  return gated_norm(result.y.reshape({batch, seq, *spec_.d_inner}), parts[0]);
}

Tensor Mamba2Mixer::step(const Tensor& x, const ForwardContext& /*pass*/, StateCache& states) const {
  const int64_t batch = x.dim(0);
  const Tensor row = x.reshape({batch, x.dim(2)});
  const std::vector<Tensor> parts = project_in(row);
  Tensor conv_state = states.conv(x.dtype());
  const Tensor convolved =
      ops::causal_conv1d_step(parts[1], conv_state, conv_.weight(), conv_.bias(), ops::ConvActivation::silu);
  states.keep_conv(conv_state);
  const std::vector<Tensor> ubc = ops::split(convolved, {*spec_.d_inner, shared(), shared()}, -1);
  const Shape mixed{batch, spec_.groups, spec_.state};
  Tensor scan_state = states.scan(x.dtype());
  const Tensor y =
      ops::ssd_step(ubc[0].reshape({batch, heads(), spec_.head_dim}), parts[2], ops::scaled_exp(a_log_, -1.0),
                    ubc[1].reshape(mixed), ubc[2].reshape(mixed), scan_state, extras());
  states.keep_scan(scan_state);
  return gated_norm(y.reshape({batch, 1, *spec_.d_inner}), parts[0].reshape({batch, 1, *spec_.d_inner}));
}

std::unique_ptr<LayerCache> Mamba2Mixer::make_cache(int64_t batch, int64_t /*capacity*/, DType dtype,
                                                    const Device& device) const {
  const DType state_type = dtype == DType::f64 ? DType::f64 : DType::f32;
  return std::make_unique<StateCache>(Tensor::zeros({batch, conv_width(), spec_.conv - 1}, state_dtype(dtype), device),
                                      Tensor::zeros({batch, heads(), spec_.head_dim, spec_.state}, state_type, device));
}

}  // namespace

std::unique_ptr<Mixer> make_mamba2(int64_t d_model, const arch::Mamba2& spec, const ParameterFactory& make) {
  return std::make_unique<Mamba2Mixer>(d_model, spec, make);
}

}  // namespace lamina::nn
