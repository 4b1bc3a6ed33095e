#pragma once

#include <string>

#include "lamina/tensor/tensor.h"

namespace lamina::nn {

/// Makes a model's parameters with their initial values. A value depends on the seed, the parameter's full name and the
/// element's index alone: not on threads, on the order of making, or on whether projections are joined. On meta nothing
/// is computed.
class ParameterFactory {
 public:
  struct Options {
    DType dtype = DType::f32;
    uint64_t seed = 0;
    /// Standard deviation of weights, and of the projections that end in the residual stream.
    double deviation = 0.02;
    double residual_deviation = 0.02;
  };
  ParameterFactory(const Device& device, const Options& options) : device_(device), options_(options) {}

  /// The same for parameters whose names begin with "<name>.".
  ParameterFactory at(const std::string& name) const;

  Tensor normal(const std::string& name, const Shape& shape) const { return normal(name, shape, options_.deviation); }
  Tensor residual(const std::string& name, const Shape& shape) const {
    return normal(name, shape, options_.residual_deviation);
  }
  Tensor normal(const std::string& name, const Shape& shape, double deviation) const;
  /// In [low, high).
  Tensor uniform(const std::string& name, const Shape& shape, double low, double high) const;
  Tensor constant(const Shape& shape, double value) const;
  /// Uninitialised, to be filled by the caller (which must leave a meta tensor alone).
  Tensor empty(const Shape& shape) const { return Tensor::empty(shape, options_.dtype, device_); }

  /// Overwrites a tensor, or a view, as normal() would.
  void fill_normal(const std::string& name, const Tensor& tensor, double deviation) const;

  const Device& device() const { return device_; }
  const Options& options() const { return options_; }

 private:
  template <class F>
  void fill(const std::string& name, const Tensor& tensor, const F& value) const;

  Device device_;
  Options options_;
  std::string prefix_;
};

}  // namespace lamina::nn
