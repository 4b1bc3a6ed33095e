#pragma once

#include "support/op_case.h"

namespace lamina::testing {

/// Reproducible values for the inputs of a variant, already rounded to `dtype`.
std::vector<std::vector<double>> make_values(const OpVariant& variant, DType dtype, uint64_t seed);

Tensor make_tensor(const std::vector<double>& values, const Shape& shape, DType dtype, const Device& device);

std::vector<Tensor> make_inputs(const OpVariant& variant, const std::vector<std::vector<double>>& values, DType dtype,
                                const Device& device);

/// A strided tensor with the same values: every second element of a larger block.
Tensor make_strided(const Tensor& tensor);

struct Outcome {
  std::vector<std::vector<double>> outputs;
  std::vector<Shape> shapes;
  std::vector<DType> dtypes;
  std::vector<std::vector<double>> grads;  ///< per input; empty if no gradient is wanted
};

/// Runs forward and, if `backward`, backward with output gradients drawn from `seed`.
Outcome run_variant(const OpVariant& variant, const std::vector<Tensor>& inputs, uint64_t seed, bool backward);

/// Reproducible gradient for an output of `numel` elements.
std::vector<double> output_gradient(uint64_t seed, size_t output, size_t numel, DType dtype);

/// The oracle's results, computed in S, with gradients by scalar reverse-mode differentiation.
template <class S>
Outcome run_oracle(const OpVariant& variant, const std::vector<std::vector<double>>& values,
                   const std::vector<DType>& output_dtypes, uint64_t seed, bool backward);

double round_to(double value, DType dtype);

}  // namespace lamina::testing
