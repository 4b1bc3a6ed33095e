#pragma once

#include "lamina/ops/linear/quantized_linear.h"

namespace lamina::ops {

/// The weight [out, in] of a projection, either plain or quantized, for operators that accept both.
struct LinearWeight {
  Tensor plain;               ///< any floating type; undefined if quantized
  QuantizedWeight quantized;  ///< undefined if plain
  /// True if the kernel that was launched last does not write the weight. A product may then read it before that kernel
  /// ends (programmatic dependent launch).
  bool settled = false;

  LinearWeight() = default;
  LinearWeight(const Tensor& weight) : plain(weight) {}               // NOLINT: converts
  LinearWeight(const QuantizedWeight& weight) : quantized(weight) {}  // NOLINT: converts
  bool is_quantized() const { return quantized.defined(); }           ///< true if the weight is quantized
  Shape shape() const { return is_quantized() ? Shape{quantized.out, quantized.in} : plain.shape(); }  ///< [out, in]
  int64_t dim(int64_t axis) const { return shape()[axis]; }                                            ///< out or in
  const Tensor& data() const { return is_quantized() ? quantized.data : plain; }  ///< the tensor that is stored
};

/// linear() or quantized_linear(), depending on the weight.
Tensor project(const Tensor& x, const LinearWeight& weight, const Tensor& bias = {},
               Activation activation = Activation::none);
/// gated_linear() or quantized_gated_linear(), depending on the weight.
Tensor project_gated(const Tensor& x, const LinearWeight& weight, const Tensor& bias, Gate gate,
                     const GateOptions& options = {});

}  // namespace lamina::ops
