#pragma once

#include "lamina/tensor/tensor.h"

namespace lamina::ops {

/// Activation after a causal convolution.
enum class ConvActivation { none, silu };

/// Depthwise causal convolution along the sequence: y[t, c] = act(bias[c] + Σ_j weight[c, j] · x[t − kernel + 1 + j,
/// c]). Inputs before the first position come from the initial state, or are zero.
///   x              [batch, seq, channels]           any floating type, computed in f32 (f64 for f64)
///   weight         [channels, kernel]               any floating type, kernel >= 1
///   bias           [channels]                       or undefined
///   initial_state  [batch, channels, kernel − 1]    or undefined: the inputs before the first position, oldest first
///   y              [batch, seq, channels]           dtype of x
///
/// Backward, with p the sum inside act and g = dy · act'(p):
///   dx[t] = Σ_j weight[j] · g[t + kernel − 1 − j]  (for t < 0: the gradient of the state)
///   dweight[j] = Σ g[t] · x[t − kernel + 1 + j]        dbias = Σ g
Tensor causal_conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, const Tensor& initial_state = {},
                     ConvActivation activation = ConvActivation::none);

/// Returns the last kernel − 1 inputs, oldest first, as the initial_state of the next call: [batch, channels, kernel −
/// 1], dtype of x. No gradient.
Tensor causal_conv1d_state(const Tensor& x, int64_t kernel, const Tensor& initial_state = {});

/// causal_conv1d() of one position, for decoding: x [batch, channels] → y [batch, channels]. Updates `state` [batch,
/// channels, kernel − 1] (dtype of x) in place. No gradient.
Tensor causal_conv1d_step(const Tensor& x, Tensor& state, const Tensor& weight, const Tensor& bias = {},
                          ConvActivation activation = ConvActivation::none);

}  // namespace lamina::ops
