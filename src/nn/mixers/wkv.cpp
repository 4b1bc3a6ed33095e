#include "lamina/nn/mixers/wkv.h"

#include <cmath>

#include "lamina/nn/mixers/token_shift.h"
#include "lamina/nn/projection.h"
#include "lamina/ops/elementwise/elementwise.h"
#include "lamina/ops/ssm/wkv.h"

namespace lamina::nn {
namespace {

// Initial values. Decays per step range from exp(−exp(−5)) (slow) to exp(−exp(3)) (fast). The current token has 0.3
// times the weight of the previous one.
constexpr double kSlowestDecay = -5.0;
constexpr double kFastestDecay = 3.0;
constexpr double kInitialBonus = 0.3;

class WkvMixer final : public RecurrentMixer {
 public:
  WkvMixer(int64_t d_model, const arch::Wkv& spec, const ParameterFactory& make)
      : d_model_(d_model),
        width_(*spec.width),
        mix_k_(make.uniform("mix_k", {d_model}, 0.0, 1.0)),
        mix_v_(make.uniform("mix_v", {d_model}, 0.0, 1.0)),
        mix_r_(make.uniform("mix_r", {d_model}, 0.0, 1.0)),
        decay_(make.uniform("decay", {width_}, kSlowestDecay, kFastestDecay)),
        first_(make.constant({width_}, std::log(kInitialBonus))),
        k_(width_, d_model, false, make.at("k")),
        v_(width_, d_model, false, make.at("v")),
        r_(width_, d_model, false, make.at("r")),
        o_(d_model, width_, false, make.at("o"), Linear::Ends::in_residual) {
    add_parameter("mix_k", mix_k_);
    add_child("k", k_);
    add_parameter("mix_v", mix_v_);
    add_child("v", v_);
    add_parameter("mix_r", mix_r_);
    add_child("r", r_);
    add_parameter("decay", decay_);
    add_parameter("first", first_);
    add_child("o", o_);
  }

  CacheLayout cache_layout() const override {
    CacheLayout layout;
    layout.conv = Shape{d_model_, 1};
    layout.scan = Shape{3, width_};
    return layout;
  }
  std::unique_ptr<LayerCache> make_cache(int64_t batch, int64_t /*capacity*/, DType dtype,
                                         const Device& device) const override {
    const DType state_type = dtype == DType::f64 ? DType::f64 : DType::f32;
    return std::make_unique<StateCache>(Tensor::zeros({batch, d_model_, 1}, state_dtype(dtype), device),
                                        Tensor::zeros({batch, 3, width_}, state_type, device));
  }

 private:
  Tensor scan(const Tensor& x, const ForwardContext& /*pass*/, StateCache* states) const override {
    const Tensor k = k_.forward(token_shift(x, mix_k_, states));
    const Tensor v = v_.forward(token_shift(x, mix_v_, states));
    const Tensor gate = r_.forward(token_shift(x, mix_r_, states), ops::Activation::sigmoid);
    const Tensor state = states == nullptr ? Tensor() : states->scan(x.dtype());
    const ops::ScanResult result = ops::wkv(k, v, decay_, first_, state);
    keep_last_token(x, states);
    if (states != nullptr) states->keep_scan(result.last_state);
    return ops::mul(gate, result.y);
  }
  Tensor step(const Tensor& x, const ForwardContext& pass, StateCache& states) const override {
    return scan(x, pass, &states);
  }

  int64_t inner_width() const override { return width_; }
  Tensor project(const Tensor& y) const override { return o_.forward(y); }

  int64_t d_model_;
  int64_t width_;
  Tensor mix_k_;
  Tensor mix_v_;
  Tensor mix_r_;
  Tensor decay_;
  Tensor first_;
  Linear k_;
  Linear v_;
  Linear r_;
  Linear o_;
};

}  // namespace

std::unique_ptr<Mixer> make_wkv(int64_t d_model, const arch::Wkv& spec, const ParameterFactory& make) {
  return std::make_unique<WkvMixer>(d_model, spec, make);
}

}  // namespace lamina::nn
