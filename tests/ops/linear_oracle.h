#pragma once

#include "ops/activation_oracle.h"
#include "support/array.h"

namespace lamina::testing {

/// activation(x · wᵀ + bias): x [..., in], w [out, in], bias [out] or undefined.
template <class S>
Array<S> linear_oracle(const Array<S>& x, const Array<S>& w, const Array<S>& bias, ops::Activation activation) {
  Shape shape = x.shape;
  const int64_t in = shape[-1];
  const int64_t out = w.dim(0);
  shape[-1] = out;
  Array<S> y(shape);
  for (int64_t i = 0; i < x.shape.rows(); ++i) {
    for (int64_t j = 0; j < out; ++j) {
      S sum = 0;
      for (int64_t l = 0; l < in; ++l) sum += x[i * in + l] * w[j * in + l];
      if (bias.defined()) sum += bias[j];
      y[i * out + j] = activation_oracle(activation, sum);
    }
  }
  return y;
}

}  // namespace lamina::testing
