#pragma once

#include <string>

#include "lamina/arch/tensor_shards.h"
#include "lamina/tensor/tensor.h"

namespace lamina::nn {

/// Creates a model's parameters with their initial values. A value depends only on the seed, the parameter's full name
/// and the element's index in the whole weight. It does not depend on the number of threads, the order of creation, or
/// packing; and a shard is a slice of the single-device values. On the meta device nothing is computed.
class ParameterFactory {
 public:
  struct Options {
    DType dtype = DType::f32;
    uint64_t seed = 0;
    /// Standard deviation of weights. Projections into the residual stream have their own.
    double deviation = 0.02;
    double residual_deviation = 0.02;
    /// The shard of every weight that this rank holds. Null: whole weights. Must outlive the factory.
    const arch::Shards* shards = nullptr;
  };
  ParameterFactory(const Device& device, const Options& options) : device_(device), options_(options) {}

  /// A factory that prefixes parameter names with "<name>.".
  ParameterFactory at(const std::string& name) const;

  /// Whether this rank holds the weight. Shapes passed to the other functions are those of its shard.
  bool holds(const std::string& name) const;
  /// Whether this rank holds a weight under "<name>.". Also true if there is no such weight.
  bool holds_any(const std::string& name) const;
  /// The number of experts that this rank holds of a weight [experts, …].
  int64_t held_experts(const std::string& name, int64_t experts) const;
  /// The shard of a weight that this rank holds; null if it holds the whole weight.
  const arch::Shard* shard(const std::string& name) const;

  Tensor normal(const std::string& name, const Shape& shape) const { return normal(name, shape, options_.deviation); }
  Tensor residual(const std::string& name, const Shape& shape) const {
    return normal(name, shape, options_.residual_deviation);
  }
  Tensor normal(const std::string& name, const Shape& shape, double deviation) const;
  /// Uniform in [low, high).
  Tensor uniform(const std::string& name, const Shape& shape, double low, double high) const;
  Tensor constant(const Shape& shape, double value) const;
  /// Uninitialised; the caller fills it, unless it is a meta tensor.
  Tensor empty(const Shape& shape) const { return Tensor::empty(shape, options_.dtype, device_); }

  /// Overwrites a tensor or view with the values that normal() would give it.
  void fill_normal(const std::string& name, const Tensor& tensor, double deviation) const;

  const Device& device() const { return device_; }
  const Options& options() const { return options_; }

 private:
  template <class F>
  void fill(const std::string& name, const Tensor& tensor, const F& value) const;

  Device device_;
  Device host_ = Device::cpu();  // computes initial values for tensors on other devices
  Options options_;
  std::string prefix_;
};

}  // namespace lamina::nn
