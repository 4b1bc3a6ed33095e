#include "lamina/nn/mixers/gated_delta.h"

#include <cmath>

#include "lamina/nn/mixers/ssm_parameters.h"
#include "lamina/nn/mixers/state_cache.h"
#include "lamina/nn/norm.h"
#include "lamina/nn/projection.h"
#include "lamina/ops/activation/activation.h"
#include "lamina/ops/elementwise/concat.h"
#include "lamina/ops/elementwise/elementwise.h"
#include "lamina/ops/elementwise/scaled_exp.h"
#include "lamina/ops/elementwise/split.h"
#include "lamina/ops/loss/softmax.h"
#include "lamina/ops/ssm/causal_conv1d.h"
#include "lamina/ops/ssm/gated_delta.h"

namespace lamina::nn {
namespace {

constexpr double kLengthEps = 1e-6;  // added to the squared norm of q and k

/// −softplus(x) = log_softmax([x, 0])[1], in the accumulation type of x.
Tensor negative_softplus(const Tensor& x) {
  Shape column = x.shape();
  column.push_back(1);
  const Tensor exponent = x.to(x.dtype() == DType::f64 ? DType::f64 : DType::f32).reshape(column);
  const Tensor zeros = Tensor::zeros(column, exponent.dtype(), x.device());
  return ops::log_softmax(ops::concat({exponent, zeros}, -1)).slice(-1, 1, 1).reshape(x.shape());
}

class GatedDeltaMixer final : public RecurrentMixer {
 public:
  GatedDeltaMixer(int64_t d_model, const arch::GatedDelta& spec, const ParameterFactory& make)
      : spec_(spec),
        in_("in",
            {{"q", keys(), false},
             {"k", keys(), false},
             {"v", values(), false},
             {"z", values(), false},
             {"b", spec.n_heads, false},
             {"a", spec.n_heads, false}},
            d_model, make),
        conv_(conv_parameters(conv_width(), spec.conv, false, make.at("conv"))),
        dt_bias_(make.constant({spec.n_heads}, 1.0)),
        a_log_(log_counting("a_log", {spec.n_heads}, make)),
        length_(arch::RmsNormNoParams{.eps = kLengthEps / static_cast<double>(spec.key_dim)}, spec.key_dim,
                make.at("length")),
        norm_(arch::RmsNorm{.eps = spec.norm_eps}, spec.value_dim, make.at("norm")),
        o_(d_model, values(), false, make.at("o"), Linear::Ends::in_residual) {
    add_child("", in_);
    add_child("conv", conv_);
    add_parameter("dt_bias", dt_bias_);
    add_parameter("a_log", a_log_);
    add_child("norm", norm_);
    add_child("o", o_);
  }

  CacheLayout cache_layout() const override {
    CacheLayout layout;
    layout.conv = Shape{conv_width(), spec_.conv - 1};
    layout.scan = Shape{spec_.n_heads, spec_.key_dim, spec_.value_dim};
    return layout;
  }
  std::unique_ptr<LayerCache> make_cache(int64_t batch, int64_t /*capacity*/, DType dtype,
                                         const Device& device) const override {
    const DType state_type = dtype == DType::f64 ? DType::f64 : DType::f32;
    return std::make_unique<StateCache>(
        Tensor::zeros({batch, conv_width(), spec_.conv - 1}, state_dtype(dtype), device),
        Tensor::zeros({batch, spec_.n_heads, spec_.key_dim, spec_.value_dim}, state_type, device));
  }

 private:
  Tensor scan(const Tensor& x, const ForwardContext& /*pass*/, StateCache* states) const override {
    const int64_t batch = x.dim(0);
    const int64_t seq = x.dim(1);
    const std::vector<Tensor> parts =
        ops::split(in_.forward(x), {conv_width(), values(), spec_.n_heads, spec_.n_heads}, -1);
    const Tensor before = states == nullptr ? Tensor() : states->conv(x.dtype());
    const Tensor convolved = ops::causal_conv1d(parts[0], conv_.weight(), {}, before, ops::ConvActivation::silu);
    const std::vector<Tensor> qkv = ops::split(convolved, {keys(), keys(), values()}, -1);
    const Shape by_key{batch, seq, *spec_.n_key_heads, spec_.key_dim};
    const Shape by_head{batch, seq, spec_.n_heads, spec_.value_dim};
    // x / |x| is RMS norm divided by sqrt(width). q is also scaled by 1/sqrt(width), so it gets the factor twice.
    const auto width = static_cast<double>(spec_.key_dim);
    const Tensor q = ops::scale(length_.forward(qkv[0].reshape(by_key)), 1.0 / width);
    const Tensor k = ops::scale(length_.forward(qkv[1].reshape(by_key)), 1.0 / std::sqrt(width));
    const Tensor state = states == nullptr ? Tensor() : states->scan(x.dtype());
    const ops::ScanResult result = ops::gated_delta(q, k, qkv[2].reshape(by_head), log_decay(parts[3]),
                                                    ops::activation(parts[2], ops::Activation::sigmoid), state);
    if (states != nullptr) {
      states->keep_conv(ops::causal_conv1d_state(parts[0], spec_.conv, before));
      states->keep_scan(result.last_state);
    }
    const Tensor gate = ops::activation(parts[1], ops::Activation::silu);
    return ops::mul(norm_.forward(result.y).reshape({batch, seq, values()}), gate);
  }
  Tensor step(const Tensor& x, const ForwardContext& pass, StateCache& states) const override {
    return scan(x, pass, &states);
  }

  /// Log of the decay: −exp(a_log) · softplus(a + dt_bias).
  Tensor log_decay(const Tensor& a) const {
    const Tensor step = negative_softplus(ops::add(a, dt_bias_.to(a.dtype())));
    return ops::mul(step, ops::scaled_exp(a_log_, 1.0).to(step.dtype()));
  }

  int64_t keys() const { return *spec_.n_key_heads * spec_.key_dim; }
  int64_t values() const { return spec_.n_heads * spec_.value_dim; }
  int64_t conv_width() const { return 2 * keys() + values(); }
  int64_t inner_width() const override { return values(); }
  Tensor project(const Tensor& y) const override { return o_.forward(y); }

  arch::GatedDelta spec_;
  PackedLinear in_;
  WeightAndBias conv_;
  Tensor dt_bias_;
  Tensor a_log_;
  NormLayer length_;
  NormLayer norm_;
  Linear o_;
};

}  // namespace

std::unique_ptr<Mixer> make_gated_delta(int64_t d_model, const arch::GatedDelta& spec, const ParameterFactory& make) {
  return std::make_unique<GatedDeltaMixer>(d_model, spec, make);
}

}  // namespace lamina::nn
