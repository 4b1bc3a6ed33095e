#pragma once

#include "lamina/nn/module.h"
#include "lamina/nn/parameter_factory.h"

namespace lamina::nn {

/// "weight" and, where it is defined, "bias": of projections and convolutions that an operator takes apart.
class WeightAndBias final : public Module {
 public:
  WeightAndBias(Tensor weight, Tensor bias) : weight_(std::move(weight)), bias_(std::move(bias)) {
    add_parameter("weight", weight_);
    if (bias_.defined()) add_parameter("bias", bias_);
  }
  const Tensor& weight() const { return weight_; }
  const Tensor& bias() const { return bias_; }

 private:
  Tensor weight_;
  Tensor bias_;
};

/// weight [channels, taps] and bias [channels] of a depth-wise convolution, uniform in ±1/sqrt(taps).
WeightAndBias conv_parameters(int64_t channels, int64_t taps, bool bias, const ParameterFactory& make);

/// log(1 … n) along the last dimension of `shape`: every channel has the same decay rates 1 … n to begin with.
Tensor log_counting(const Shape& shape, const ParameterFactory& make);

/// log of step sizes drawn log-uniformly from [dt_min, dt_max]: [count].
Tensor log_steps(const std::string& name, int64_t count, double dt_min, double dt_max, const ParameterFactory& make);
/// The same step sizes as a bias in front of softplus: b with log(1 + exp(b)) = dt.
Tensor softplus_steps(const std::string& name, int64_t count, double dt_min, double dt_max,
                      const ParameterFactory& make);

}  // namespace lamina::nn
