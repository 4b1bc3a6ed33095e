#include "lamina/nn/mixers/s4d.h"

#include <cmath>
#include <numbers>

#include "lamina/nn/mixers/ssm_parameters.h"
#include "lamina/nn/mixers/state_cache.h"
#include "lamina/nn/projection.h"
#include "lamina/ops/activation/gated_activation.h"
#include "lamina/ops/ssm/long_conv.h"
#include "lamina/ops/ssm/s4d.h"

namespace lamina::nn {
namespace {

class S4dMixer final : public Mixer {
 public:
  S4dMixer(int64_t d_model, const arch::S4d& spec, const ParameterFactory& make);

  Tensor forward(const Tensor& x, ForwardContext& pass, LayerCache* cache) override {
    const Tensor y = run_recurrence(
        x, pass, cache, d_model_, [this](const Tensor& part, StateCache* states) { return state_space(part, states); });
    return ops::gated_activation(out_.forward(ops::activation(y, ops::Activation::gelu)), ops::Gate::glu);
  }
  CacheLayout cache_layout() const override {
    CacheLayout layout;
    layout.scan = Shape{d_model_, modes_, 2};
    return layout;
  }
  std::unique_ptr<LayerCache> make_cache(int64_t batch, int64_t capacity, DType dtype,
                                         const Device& device) const override;

 private:
  /// [batch, seq, d_model] → the same shape.
  Tensor state_space(const Tensor& u, StateCache* states) const;
  ops::S4dParameters parameters() const { return {log_dt_, a_log_, a_imag_, c_}; }

  int64_t d_model_;
  int64_t modes_;
  Tensor log_dt_;
  Tensor a_log_;
  Tensor a_imag_;
  Tensor c_;
  Tensor d_;
  Linear out_;
};

/// Initial frequencies π · (0, 1, 2, …) for every channel: S4D-Lin, linearly spaced.
Tensor frequencies(int64_t channels, int64_t modes, const ParameterFactory& make) {
  Tensor tensor = make.constant({channels, modes}, 0.0);
  for (int64_t n = 0; n < modes; ++n) tensor.slice(1, n, 1).fill_(std::numbers::pi * static_cast<double>(n));
  return tensor;
}

S4dMixer::S4dMixer(int64_t d_model, const arch::S4d& spec, const ParameterFactory& make)
    : d_model_(d_model),
      modes_(spec.state / 2),
      log_dt_(log_steps("log_dt", d_model, spec.dt_min, spec.dt_max, make)),
      a_log_(make.constant({d_model, modes_}, std::log(0.5))),
      a_imag_(frequencies(d_model, modes_, make)),
      c_(make.normal("c", {d_model, modes_, 2}, std::sqrt(0.5))),
      d_(make.normal("d", {d_model}, 1.0)),
      out_(2 * d_model, d_model, spec.bias, make.at("out"), Linear::Ends::in_residual) {
  add_parameter("log_dt", log_dt_);
  add_parameter("a_log", a_log_);
  add_parameter("a_imag", a_imag_);
  add_parameter("c", c_);
  add_parameter("d", d_);
  add_child("out", out_);
}

Tensor S4dMixer::state_space(const Tensor& u, StateCache* states) const {
  if (states != nullptr) {
    const ops::ScanResult result = ops::s4d_recurrence(u, parameters(), d_, states->scan(u.dtype()));
    states->keep_scan(result.last_state);
    return result.y;
  }
  // Estimated cost per channel, in multiply-adds of the convolution. One step of a complex mode takes as long as about
  // 16 of them (measured). Computing the convolution kernel costs as much as the recurrence of one row.
  const int64_t batch = u.dim(0);
  const int64_t seq = u.dim(1);
  constexpr int64_t kPerMode = 16;
  const int64_t convolved = seq * (kPerMode * modes_ + batch * seq / 2);
  const int64_t walked = batch * seq * kPerMode * modes_;
  if (convolved < walked) return ops::long_conv(u, ops::s4d_kernel(parameters(), seq), d_);
  return ops::s4d_recurrence(u, parameters(), d_).y;
}

std::unique_ptr<LayerCache> S4dMixer::make_cache(int64_t batch, int64_t /*capacity*/, DType dtype,
                                                 const Device& device) const {
  const DType state_type = dtype == DType::f64 ? DType::f64 : DType::f32;
  return std::make_unique<StateCache>(Tensor(), Tensor::zeros({batch, d_model_, modes_, 2}, state_type, device));
}

}  // namespace

std::unique_ptr<Mixer> make_s4d(int64_t d_model, const arch::S4d& spec, const ParameterFactory& make) {
  return std::make_unique<S4dMixer>(d_model, spec, make);
}

}  // namespace lamina::nn
