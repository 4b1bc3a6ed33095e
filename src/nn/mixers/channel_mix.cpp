#include "lamina/nn/mixers/channel_mix.h"

#include "lamina/nn/mixers/token_shift.h"
#include "lamina/nn/projection.h"
#include "lamina/ops/elementwise/elementwise.h"

namespace lamina::nn {
namespace {

class ChannelMixer final : public RecurrentMixer {
 public:
  ChannelMixer(int64_t d_model, const arch::ChannelMix& spec, const ParameterFactory& make)
      : d_model_(d_model),
        mix_k_(make.uniform("mix_k", {d_model}, 0.0, 1.0)),
        mix_r_(make.uniform("mix_r", {d_model}, 0.0, 1.0)),
        k_(*spec.d_ff, d_model, false, make.at("k")),
        r_(d_model, d_model, false, make.at("r")),
        v_(d_model, *spec.d_ff, false, make.at("v"), Linear::Ends::in_residual) {
    add_parameter("mix_k", mix_k_);
    add_parameter("mix_r", mix_r_);
    add_child("k", k_);
    add_child("r", r_);
    add_child("v", v_);
  }

  CacheLayout cache_layout() const override {
    CacheLayout layout;
    layout.conv = Shape{d_model_, 1};
    return layout;
  }
  std::unique_ptr<LayerCache> make_cache(int64_t batch, int64_t /*capacity*/, DType dtype,
                                         const Device& device) const override {
    return std::make_unique<StateCache>(Tensor::zeros({batch, d_model_, 1}, state_dtype(dtype), device), Tensor());
  }

 private:
  Tensor scan(const Tensor& x, const ForwardContext& /*pass*/, StateCache* states) const override {
    const Tensor inner = k_.forward(token_shift(x, mix_k_, states), ops::Activation::relu2);
    const Tensor gate = r_.forward(token_shift(x, mix_r_, states), ops::Activation::sigmoid);
    keep_last_token(x, states);
    return ops::mul(gate, v_.forward(inner));
  }
  Tensor step(const Tensor& x, const ForwardContext& pass, StateCache& states) const override {
    return scan(x, pass, &states);
  }

  int64_t inner_width() const override { return d_model_; }
  /// scan() already applies the output projection, because the gate follows it.
  Tensor project(const Tensor& y) const override { return y; }

  int64_t d_model_;
  Tensor mix_k_;
  Tensor mix_r_;
  Linear k_;
  Linear r_;
  Linear v_;
};

}  // namespace

std::unique_ptr<Mixer> make_channel_mix(int64_t d_model, const arch::ChannelMix& spec, const ParameterFactory& make) {
  return std::make_unique<ChannelMixer>(d_model, spec, make);
}

}  // namespace lamina::nn
