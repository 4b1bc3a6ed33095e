#pragma once

#include "support/op_case.h"

namespace lamina::testing {

/// Values for the inputs of a variant, reproducible, already rounded to `dtype`.
std::vector<std::vector<double>> make_values(const OpVariant& variant, DType dtype, uint64_t seed);

Tensor make_tensor(const std::vector<double>& values, const Shape& shape, DType dtype, const Device& device);

std::vector<Tensor> make_inputs(const OpVariant& variant, const std::vector<std::vector<double>>& values, DType dtype,
                                const Device& device);

/// A tensor of the same values whose memory is not dense: every second element of a larger block.
Tensor make_strided(const Tensor& tensor);

struct Outcome {
  std::vector<std::vector<double>> outputs;
  std::vector<Shape> shapes;
  std::vector<DType> dtypes;
  std::vector<std::vector<double>> grads;  ///< per input; empty where no gradient is wanted
};

/// Forward, and backward with output gradients drawn from `seed` unless `backward` is false.
Outcome run_variant(const OpVariant& variant, const std::vector<Tensor>& inputs, uint64_t seed, bool backward);

/// The gradient an output of `numel` elements is given, reproducible.
std::vector<double> output_gradient(uint64_t seed, size_t output, size_t numel, DType dtype);

/// What the oracle says, computed in S, with gradients by scalar differentiation.
template <class S>
Outcome run_oracle(const OpVariant& variant, const std::vector<std::vector<double>>& values,
                   const std::vector<DType>& output_dtypes, uint64_t seed, bool backward);

double round_to(double value, DType dtype);

}  // namespace lamina::testing
