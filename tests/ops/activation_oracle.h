#pragma once

#include <cmath>

#include "lamina/ops/activation/activation.h"

namespace lamina::testing {

template <class S>
S activation_oracle(ops::Activation function, const S& x) {
  using ops::Activation;
  using std::erf;
  using std::exp;
  using std::expm1;
  using std::tanh;
  switch (function) {
    case Activation::none: return x;
    case Activation::relu: return x > S(0) ? x : S(0);
    case Activation::gelu: return S(0.5) * x * (S(1) + erf(x * S(0.70710678118654752)));
    case Activation::gelu_tanh:
      return S(0.5) * x * (S(1) + tanh(S(0.79788456080286536) * (x + S(0.044715) * x * x * x)));
    case Activation::silu: return x / (S(1) + exp(-x));
    case Activation::elu: return x > S(0) ? x : expm1(x);
    case Activation::selu: return S(1.0507009873554805) * (x > S(0) ? x : S(1.6732632423543773) * expm1(x));
    case Activation::relu2: return x > S(0) ? x * x : S(0);
    case Activation::sigmoid: return S(1) / (S(1) + exp(-x));
    case Activation::tanh: return tanh(x);
  }
  return x;
}

}  // namespace lamina::testing
