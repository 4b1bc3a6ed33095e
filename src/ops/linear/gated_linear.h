#pragma once

#include "lamina/ops/activation/gated_activation.h"
#include "lamina/tensor/tensor.h"

namespace lamina::ops {

/// gated_activation(linear(x, weight, bias), gate, options): the first half of a gated feed-forward network.
///   x       [..., in]     any floating type
///   weight  [2·n, in]     gate and up rows as gated_activation takes them: stacked halves, or interleaved
///   bias    [2·n]         or undefined
///   y       [..., n]      dtype of x
/// Composed of these two operators. Without gradients, few rows on a GPU take one launch, and gate and up are not
/// rounded in between.
Tensor gated_linear(const Tensor& x, const Tensor& weight, const Tensor& bias, Gate gate,
                    const GateOptions& options = {});

}  // namespace lamina::ops
