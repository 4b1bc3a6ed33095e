#pragma once

#include "lamina/tensor/tensor.h"

namespace lamina::ops {

enum class ConvActivation { none, silu };

/// Depthwise causal convolution: y[t, c] = act(bias[c] + Σ_j weight[c, j] · x[t − kernel + 1 + j, c]). Inputs before
/// the first position come from the initial state, or are zero.
///   x              [batch, seq, channels]           any floating type, computed in f32 (f64 for f64)
///   weight         [channels, kernel]               any floating type, kernel >= 1
///   bias           [channels]                       or undefined
///   initial_state  [batch, channels, kernel − 1]    or undefined: the inputs before the first, oldest first
///   y              [batch, seq, channels]           dtype of x
///
/// Backward, with p the sum inside act and g = dy · act'(p):
///   dx[t] = Σ_j weight[j] · g[t + kernel − 1 − j]  (for t < 0: the gradient of the state)
///   dweight[j] = Σ g[t] · x[t − kernel + 1 + j]        dbias = Σ g
Tensor causal_conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, const Tensor& initial_state = {},
                     ConvActivation activation = ConvActivation::none);

/// The last kernel − 1 inputs, oldest first, as initial_state of the next call: [batch, channels, kernel − 1], dtype of
/// x, without gradient.
Tensor causal_conv1d_state(const Tensor& x, int64_t kernel, const Tensor& initial_state = {});

/// One position, for decoding: x [batch, channels] → y [batch, channels]. Updates `state` [batch, channels, kernel − 1]
/// (dtype of x) in place. Records no gradient.
Tensor causal_conv1d_step(const Tensor& x, Tensor& state, const Tensor& weight, const Tensor& bias = {},
                          ConvActivation activation = ConvActivation::none);

/// Kernel arguments. Small tensors are transposed so that channels are contiguous: taps [kernel, channels] and bias
/// [channels] in the accumulation type, state [batch, kernel − 1, channels] in the dtype of x.
struct CausalConv1dForward {
  Tensor x;
  Tensor taps;
  Tensor bias;
  Tensor state;
  bool silu = false;
  Tensor y;
};
struct CausalConv1dBackward {
  CausalConv1dForward forward;  ///< without y
  Tensor dy;
  Tensor dx;
  Tensor dtaps;  ///< [kernel, channels], accumulation type, or undefined; dbias likewise
  Tensor dbias;
  Tensor dstate;  ///< [batch, kernel − 1, channels], or undefined
};
struct CausalConv1dStep {
  Tensor x;
  Tensor state;  ///< updated
  Tensor weight;
  Tensor bias;
  bool silu = false;
  Tensor y;
};

namespace cpu {
void causal_conv1d_forward(const CausalConv1dForward& args);
void causal_conv1d_backward(const CausalConv1dBackward& args);
void causal_conv1d_state(const Tensor& x, const Tensor& initial_state, const Tensor& state);
void causal_conv1d_step(const CausalConv1dStep& args);
}  // namespace cpu
namespace cuda {
void causal_conv1d_forward(const CausalConv1dForward& args);
void causal_conv1d_backward(const CausalConv1dBackward& args);
void causal_conv1d_state(const Tensor& x, const Tensor& initial_state, const Tensor& state);
void causal_conv1d_step(const CausalConv1dStep& args);
}  // namespace cuda

}  // namespace lamina::ops
