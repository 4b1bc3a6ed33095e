#include "lamina/nn/mixers/short_conv.h"

#include "lamina/nn/mixers/ssm_parameters.h"
#include "lamina/nn/mixers/state_cache.h"
#include "lamina/nn/projection.h"
#include "lamina/ops/elementwise/elementwise.h"
#include "lamina/ops/elementwise/split.h"
#include "lamina/ops/ssm/causal_conv1d.h"

namespace lamina::nn {
namespace {

class ShortConvMixer final : public RecurrentMixer {
 public:
  ShortConvMixer(int64_t d_model, const arch::ShortConv& spec, const ParameterFactory& make)
      : width_(d_model),
        taps_(spec.conv),
        in_(3 * d_model, d_model, spec.bias, make.at("in")),
        conv_(conv_parameters(d_model, spec.conv, spec.bias, make.at("conv"))),
        out_(d_model, d_model, spec.bias, make.at("out"), Linear::Ends::in_residual) {
    add_child("in", in_);
    add_child("conv", conv_);
    add_child("out", out_);
  }

  CacheLayout cache_layout() const override {
    CacheLayout layout;
    layout.conv = Shape{width_, taps_ - 1};
    return layout;
  }
  std::unique_ptr<LayerCache> make_cache(int64_t batch, int64_t /*capacity*/, DType dtype,
                                         const Device& device) const override {
    return std::make_unique<StateCache>(Tensor::zeros({batch, width_, taps_ - 1}, state_dtype(dtype), device),
                                        Tensor());
  }

 private:
  Tensor scan(const Tensor& x, const ForwardContext& /*pass*/, StateCache* states) const override {
    const std::vector<Tensor> parts = ops::split(in_.forward(x), {width_, width_, width_}, -1);
    const Tensor gated = ops::mul(parts[0], parts[2]);
    const Tensor before = states == nullptr ? Tensor() : states->conv(x.dtype());
    const Tensor mixed = ops::causal_conv1d(gated, conv_.weight(), conv_.bias(), before);
    if (states != nullptr) states->keep_conv(ops::causal_conv1d_state(gated, taps_, before));
    return ops::mul(parts[1], mixed);
  }

  Tensor step(const Tensor& x, const ForwardContext& /*pass*/, StateCache& states) const override {
    const Tensor row = x.reshape({x.dim(0), x.dim(2)});
    const std::vector<Tensor> parts = ops::split(in_.forward(row), {width_, width_, width_}, -1);
    Tensor state = states.conv(x.dtype());
    const Tensor mixed = ops::causal_conv1d_step(ops::mul(parts[0], parts[2]), state, conv_.weight(), conv_.bias());
    states.keep_conv(state);
    return ops::mul(parts[1], mixed).reshape({x.dim(0), 1, width_});
  }

  int64_t inner_width() const override { return width_; }
  Tensor project(const Tensor& y) const override { return out_.forward(y); }

  int64_t width_;
  int64_t taps_;
  Linear in_;
  WeightAndBias conv_;
  Linear out_;
};

}  // namespace

std::unique_ptr<Mixer> make_short_conv(int64_t d_model, const arch::ShortConv& spec, const ParameterFactory& make) {
  return std::make_unique<ShortConvMixer>(d_model, spec, make);
}

}  // namespace lamina::nn
