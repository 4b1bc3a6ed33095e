#pragma once

#include "lamina/nn/module.h"

namespace lamina::nn {

/// A "weight" and an optional "bias", for operators that take them as plain tensors.
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

}  // namespace lamina::nn
