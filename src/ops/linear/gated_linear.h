#pragma once

#include "lamina/ops/activation/gated_activation.h"
#include "lamina/tensor/tensor.h"

namespace lamina::ops {

/// gated_activation(linear(x, weight, bias), gate, options): how a gated feed-forward begins.
///   x       [..., in]     any floating type
///   weight  [2·n, in]     gate and up joined as gated_activation takes them: halves, or in turns
///   bias    [2·n]         or undefined
///   y       [..., n]      x's type
/// It is these two operators; where nothing is recorded, few rows on a GPU take one launch, and gate and up are not
/// rounded between them.
Tensor gated_linear(const Tensor& x, const Tensor& weight, const Tensor& bias, Gate gate,
                    const GateOptions& options = {});

/// What the kernel is given.
struct GatedLinearForward {
  Tensor x;       ///< [rows, in], dense, at most kFewRows rows
  Tensor weight;  ///< [2·n, in], rows or columns dense
  Tensor bias;    ///< [2·n], accumulation type, or undefined
  Gate gate;
  GateOptions options;
  Tensor y;  ///< [rows, n]
};
namespace cuda {
void gated_linear_forward(const GatedLinearForward& args);
}  // namespace cuda

}  // namespace lamina::ops
