#pragma once

#include "lamina/ops/ssm/causal_conv1d.h"

namespace lamina::ops {

/// Kernel arguments, shaped as in causal_conv1d() except for small tensors, which are transposed so that channels are
/// contiguous: taps [kernel, channels] and bias [channels] in the accumulation type, state [batch, kernel − 1,
/// channels] in the dtype of x.
struct CausalConv1dForward {
  Tensor x;
  Tensor taps;
  Tensor bias;
  Tensor state;
  bool silu = false;
  Tensor y;
};
struct CausalConv1dBackward {
  CausalConv1dForward forward;  ///< y is not set
  Tensor dy;
  Tensor dx;
  Tensor dtaps;  ///< [kernel, channels], accumulation type, or undefined; dbias [channels] likewise
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
