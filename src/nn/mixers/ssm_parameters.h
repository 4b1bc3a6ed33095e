#pragma once

#include "lamina/nn/parameter_factory.h"
#include "lamina/nn/weight_and_bias.h"

namespace lamina::nn {

/// weight [channels, taps] and bias [channels] of a depthwise convolution, uniform in ±1/sqrt(taps).
WeightAndBias conv_parameters(int64_t channels, int64_t taps, bool bias, const ParameterFactory& make);

/// log(1 … n) along the last dimension of `shape`: initial decay rates 1 … n for every channel. If this rank holds only
/// a part of the weight `name`, the numbers are those of its position in the whole weight.
Tensor log_counting(const std::string& name, const Shape& shape, const ParameterFactory& make);

/// log(dt) of step sizes drawn log-uniformly from [dt_min, dt_max]: [count].
Tensor log_steps(const std::string& name, int64_t count, double dt_min, double dt_max, const ParameterFactory& make);
/// The step sizes of log_steps() as the bias before a softplus: b with log(1 + exp(b)) = dt.
Tensor softplus_steps(const std::string& name, int64_t count, double dt_min, double dt_max,
                      const ParameterFactory& make);

/// Initial λ of a linear recurrent unit: exp(−softplus(λ)) = a with a² uniform in [0.9², 0.999²].
Tensor lru_decays(const std::string& name, int64_t count, const ParameterFactory& make);

}  // namespace lamina::nn
