#include "lamina/nn/mixers/rg_lru.h"

#include <cmath>

#include "lamina/nn/mixers/ssm_parameters.h"
#include "lamina/nn/mixers/state_cache.h"
#include "lamina/nn/projection.h"
#include "lamina/ops/elementwise/concat.h"
#include "lamina/ops/elementwise/elementwise.h"
#include "lamina/ops/linear/matmul.h"
#include "lamina/ops/ssm/causal_conv1d.h"
#include "lamina/ops/ssm/rg_lru.h"

namespace lamina::nn {
namespace {

WeightAndBias gate_parameters(int64_t width, int64_t blocks, const ParameterFactory& make) {
  const int64_t block = width / blocks;
  const double bound = std::sqrt(3.0 / static_cast<double>(block));  // variance 1 / block, if uniform in ±bound
  return {make.uniform("weight", {blocks, block, block}, -bound, bound), make.constant({blocks, block}, 0.0)};
}

class RgLruMixer final : public RecurrentMixer {
 public:
  RgLruMixer(int64_t d_model, const arch::RgLru& spec, const ParameterFactory& make)
      : width_(*spec.width),
        blocks_(spec.blocks),
        taps_(spec.conv),
        y_(width_, d_model, true, make.at("y")),
        x_(width_, d_model, true, make.at("x")),
        conv_(conv_parameters(width_, taps_, true, make.at("conv"))),
        input_gate_(gate_parameters(width_, blocks_, make.at("input_gate"))),
        recurrence_gate_(gate_parameters(width_, blocks_, make.at("recurrence_gate"))),
        decay_(lru_decays("decay", width_, make)),
        out_(d_model, width_, true, make.at("out"), Linear::Ends::in_residual) {
    add_child("y", y_);
    add_child("x", x_);
    add_child("conv", conv_);
    add_child("input_gate", input_gate_);
    add_child("recurrence_gate", recurrence_gate_);
    add_parameter("decay", decay_);
    add_child("out", out_);
  }

  CacheLayout cache_layout() const override {
    CacheLayout layout;
    layout.conv = Shape{width_, taps_ - 1};
    layout.scan = Shape{width_ + 1};
    return layout;
  }
  std::unique_ptr<LayerCache> make_cache(int64_t batch, int64_t /*capacity*/, DType dtype,
                                         const Device& device) const override {
    const DType state_type = dtype == DType::f64 ? DType::f64 : DType::f32;
    return std::make_unique<StateCache>(Tensor::zeros({batch, width_, taps_ - 1}, state_dtype(dtype), device),
                                        Tensor::zeros({batch, width_ + 1}, state_type, device));
  }

 private:
  Tensor scan(const Tensor& x, const ForwardContext& /*pass*/, StateCache* states) const override {
    const Tensor gate = y_.forward(x, ops::Activation::gelu_tanh);
    const Tensor projected = x_.forward(x);
    const Tensor before = states == nullptr ? Tensor() : states->conv(x.dtype());
    const Tensor u = ops::causal_conv1d(projected, conv_.weight(), conv_.bias(), before);
    Tensor state;
    Tensor begun;  // whether the sequence has begun: the last element of the cached state
    if (states != nullptr) {
      const Tensor held = states->scan(x.dtype());
      state = held.slice(1, 0, width_);
      begun = held.slice(1, width_, 1).reshape({x.dim(0)});
    }
    const ops::ScanResult result =
        ops::rg_lru(u, gate_of(input_gate_, u), gate_of(recurrence_gate_, u), decay_, state, begun);
    if (states != nullptr) {
      states->keep_conv(ops::causal_conv1d_state(projected, taps_, before));
      Tensor flag = Tensor::empty({x.dim(0), 1}, result.last_state.dtype(), x.device());
      flag.fill_(1.0);
      states->keep_scan(ops::concat({result.last_state, flag}, 1));
    }
    return ops::mul(result.y, gate);
  }
  Tensor step(const Tensor& x, const ForwardContext& pass, StateCache& states) const override {
    return scan(x, pass, &states);
  }

  /// Block-diagonal projection of u [batch, seq, width].
  Tensor gate_of(const WeightAndBias& gate, const Tensor& u) const {
    const int64_t block = width_ / blocks_;
    const Tensor rows = u.reshape({u.dim(0) * u.dim(1), blocks_, block}).transpose(0, 1);
    const Tensor bias = gate.bias().to(u.dtype()).reshape({blocks_, 1, block});
    const Tensor projected = ops::add(ops::matmul(rows, gate.weight().to(u.dtype())), bias);
    return projected.transpose(0, 1).reshape(u.shape());
  }

  int64_t inner_width() const override { return width_; }
  Tensor project(const Tensor& y) const override { return out_.forward(y); }

  int64_t width_;
  int64_t blocks_;
  int64_t taps_;
  Linear y_;
  Linear x_;
  WeightAndBias conv_;
  WeightAndBias input_gate_;
  WeightAndBias recurrence_gate_;
  Tensor decay_;
  Linear out_;
};

}  // namespace

std::unique_ptr<Mixer> make_rg_lru(int64_t d_model, const arch::RgLru& spec, const ParameterFactory& make) {
  return std::make_unique<RgLruMixer>(d_model, spec, make);
}

}  // namespace lamina::nn
