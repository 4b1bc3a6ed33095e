#pragma once

#include "lamina/nn/module.h"
#include "lamina/nn/parameter_factory.h"

namespace lamina::nn {

/// A single tensor called "weight".
class WeightTable final : public Module {
 public:
  WeightTable(const Shape& shape, const ParameterFactory& make) : weight_(make.normal("weight", shape)) {
    add_parameter("weight", weight_);
  }
  const Tensor& weight() const { return weight_; }

 private:
  Tensor weight_;
};

}  // namespace lamina::nn
