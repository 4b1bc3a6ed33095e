#include "lamina/nn/mixers/ssm_parameters.h"

#include <cmath>

namespace lamina::nn {
namespace {

/// Overwrites the values of `tensor`.
void put(const Tensor& tensor, const std::vector<double>& values) {
  tensor.detach().copy_(Tensor::from(values, tensor.shape(), Device::cpu(1)).to(tensor.dtype()).to(tensor.device()));
}

}  // namespace

WeightAndBias conv_parameters(int64_t channels, int64_t taps, bool bias, const ParameterFactory& make) {
  const double bound = 1.0 / std::sqrt(static_cast<double>(taps));
  return {make.uniform("weight", {channels, taps}, -bound, bound),
          bias ? make.uniform("bias", {channels}, -bound, bound) : Tensor()};
}

Tensor log_counting(const std::string& name, const Shape& shape, const ParameterFactory& make) {
  Tensor tensor = make.empty(shape);
  if (tensor.is_meta()) return tensor;
  std::vector<double> values(static_cast<size_t>(tensor.numel()));
  const auto n = static_cast<size_t>(shape[-1]);
  const arch::Shard* shard = shape.rank() == 1 ? make.shard(name) : nullptr;
  const auto first = static_cast<size_t>(shard == nullptr ? 0 : shard->begin);
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::log(static_cast<double>(first + i % n + 1));
  put(tensor, values);
  return tensor;
}

Tensor log_steps(const std::string& name, int64_t count, double dt_min, double dt_max, const ParameterFactory& make) {
  return make.uniform(name, {count}, std::log(dt_min), std::log(dt_max));
}

Tensor softplus_steps(const std::string& name, int64_t count, double dt_min, double dt_max,
                      const ParameterFactory& make) {
  Tensor tensor = log_steps(name, count, dt_min, dt_max, make);
  if (tensor.is_meta()) return tensor;
  std::vector<double> values = tensor.to_vector<double>();
  for (double& value : values) {
    const double dt = std::exp(value);
    value = dt + std::log(-std::expm1(-dt));
  }
  put(tensor, values);
  return tensor;
}

Tensor lru_decays(const std::string& name, int64_t count, const ParameterFactory& make) {
  Tensor tensor = make.uniform(name, {count}, 0.9 * 0.9, 0.999 * 0.999);
  if (tensor.is_meta()) return tensor;
  std::vector<double> values = tensor.to_vector<double>();
  for (double& value : values) value = std::log(std::expm1(-0.5 * std::log(value)));
  put(tensor, values);
  return tensor;
}

}  // namespace lamina::nn
