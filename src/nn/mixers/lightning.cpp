#include "lamina/nn/mixers/lightning.h"

#include <cmath>

#include "lamina/arch/layers.h"
#include "lamina/nn/mixers/state_cache.h"
#include "lamina/nn/norm.h"
#include "lamina/nn/projection.h"
#include "lamina/ops/activation/activation.h"
#include "lamina/ops/elementwise/elementwise.h"
#include "lamina/ops/elementwise/split.h"
#include "lamina/ops/ssm/ssd_scan.h"

namespace lamina::nn {
namespace {

class LightningMixer final : public RecurrentMixer {
 public:
  LightningMixer(const arch::ArchSpec& spec, const arch::Lightning& mixer, const ParameterFactory& make)
      : spec_(mixer),
        layers_(static_cast<int64_t>(arch::layer_blocks(spec).size())),
        qkv_("qkv", {{"q", width(), false}, {"k", width(), false}, {"v", width(), false}}, spec.d_model, make),
        gate_(width(), spec.d_model, false, make.at("gate")),
        norm_(arch::RmsNorm{.eps = mixer.norm_eps}, width(), make.at("norm")),
        o_(spec.d_model, width(), false, make.at("o"), Linear::Ends::in_residual) {
    add_child("", qkv_);
    add_child("gate", gate_);
    add_child("norm", norm_);
    add_child("o", o_);
  }

  CacheLayout cache_layout() const override {
    CacheLayout layout;
    layout.scan = Shape{spec_.n_heads, *spec_.head_dim, *spec_.head_dim};
    return layout;
  }
  std::unique_ptr<LayerCache> make_cache(int64_t batch, int64_t /*capacity*/, DType dtype,
                                         const Device& device) const override {
    const DType state_type = dtype == DType::f64 ? DType::f64 : DType::f32;
    const Shape state{batch, spec_.n_heads, *spec_.head_dim, *spec_.head_dim};
    return std::make_unique<StateCache>(Tensor(), Tensor::zeros(state, state_type, device));
  }

 private:
  Tensor scan(const Tensor& x, const ForwardContext& pass, StateCache* states) const override {
    const Shape by_head{x.dim(0), x.dim(1), spec_.n_heads, *spec_.head_dim};
    const std::vector<Tensor> qkv = project_in(x);
    ops::SsdExtras options{.chunk_size = spec_.chunk};
    if (states != nullptr) options.initial_state = states->scan(x.dtype());
    const ops::ScanResult result = ops::ssd_scan(
        qkv[2].reshape(by_head), Tensor::full({x.dim(0), x.dim(1), spec_.n_heads}, 1.0, x.dtype(), x.device()),
        rates(pass.layer, x.device()), qkv[1].reshape(by_head), qkv[0].reshape(by_head), options);
    if (states != nullptr) states->keep_scan(result.last_state);
    return normed_and_gated(x, result.y.reshape({x.dim(0), x.dim(1), width()}));
  }

  Tensor step(const Tensor& x, const ForwardContext& pass, StateCache& states) const override {
    const Shape by_head{x.dim(0), spec_.n_heads, *spec_.head_dim};
    const std::vector<Tensor> qkv = project_in(x);
    Tensor state = states.scan(x.dtype());
    const Tensor ones = Tensor::full({x.dim(0), spec_.n_heads}, 1.0, x.dtype(), x.device());
    const Tensor y = ops::ssd_step(qkv[2].reshape(by_head), ones, rates(pass.layer, x.device()),
                                   qkv[1].reshape(by_head), qkv[0].reshape(by_head), state);
    states.keep_scan(state);
    return normed_and_gated(x, y.reshape({x.dim(0), 1, width()}));
  }

  std::vector<Tensor> project_in(const Tensor& x) const {
    return ops::split(ops::activation(qkv_.forward(x), ops::Activation::silu), {width(), width(), width()}, -1);
  }

  Tensor normed_and_gated(const Tensor& x, const Tensor& y) const {
    return ops::mul(norm_.forward(y), gate_.forward(x, ops::Activation::sigmoid));
  }

  /// The decay rate of each head, negated: [n_heads].
  const Tensor& rates(int64_t layer, const Device& device) const {
    if (rates_.defined() && rates_.device() == device && rates_layer_ == layer) return rates_;
    const double depth = static_cast<double>(layer) / (static_cast<double>(layers_ - 1) + 1e-5);
    const double factor = spec_.slower_with_depth ? 1.0 - depth + 1e-5 : 1.0;
    std::vector<double> values;
    for (int64_t head = 1; head <= spec_.n_heads; ++head) {
      const double exponent = -8.0 * static_cast<double>(head) / static_cast<double>(spec_.n_heads);
      values.push_back(-factor * std::exp2(exponent));
    }
    rates_layer_ = layer;
    return rates_ = Tensor::from(values, {spec_.n_heads}, device);
  }

  int64_t width() const { return spec_.n_heads * *spec_.head_dim; }
  int64_t inner_width() const override { return width(); }
  Tensor project(const Tensor& y) const override { return o_.forward(y); }

  arch::Lightning spec_;
  int64_t layers_;
  PackedLinear qkv_;
  Linear gate_;
  NormLayer norm_;
  Linear o_;
  mutable Tensor rates_;  ///< cached for the layer and device that used them last
  mutable int64_t rates_layer_ = -1;
};

}  // namespace

std::unique_ptr<Mixer> make_lightning(const arch::ArchSpec& spec, const arch::Lightning& mixer,
                                      const ParameterFactory& make) {
  return std::make_unique<LightningMixer>(spec, mixer, make);
}

}  // namespace lamina::nn
