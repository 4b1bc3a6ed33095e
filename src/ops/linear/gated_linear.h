#pragma once

#include "lamina/ops/activation/gated_activation.h"
#include "lamina/tensor/tensor.h"

namespace lamina::ops {

/// The first half of a gated feed-forward network such as SwiGLU: gated_activation(linear(x, weight, bias), gate,
/// options).
///   x       [..., in]     any floating type
///   weight  [2·n, in]     rows of gate and up in the order of gated_activation(): stacked halves, or interleaved
///   bias    [2·n]         or undefined
///   y       [..., n]      dtype of x
/// On a GPU, few rows without gradients take one launch that does not round gate and up in between. Otherwise the two
/// operators run one after the other.
Tensor gated_linear(const Tensor& x, const Tensor& weight, const Tensor& bias, Gate gate,
                    const GateOptions& options = {});

}  // namespace lamina::ops
