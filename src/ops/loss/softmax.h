#pragma once

#include "lamina/tensor/tensor.h"

namespace lamina::ops {

/// y = exp(x − max) / Σ exp(x − max) over the last dimension.
///   x, y  [..., width]   any floating type; computed in f32 (f64 for f64)
/// Backward: dx = y · (dy − Σ dy·y). A row of only −inf gives NaN (0/0).
Tensor softmax(const Tensor& x);

/// y = x − max − log Σ exp(x − max) over the last dimension. Backward: dx = dy − exp(y) · Σ dy.
Tensor log_softmax(const Tensor& x);

/// Arguments of the kernels, all of one shape; `log` selects log_softmax.
struct SoftmaxForward {
  Tensor x;
  Tensor y;
  bool log;
};
struct SoftmaxBackward {
  Tensor y;
  Tensor dy;
  Tensor dx;
  bool log;
};

namespace cpu {
void softmax_forward(const SoftmaxForward& args);
void softmax_backward(const SoftmaxBackward& args);
}  // namespace cpu
namespace cuda {
void softmax_forward(const SoftmaxForward& args);
void softmax_backward(const SoftmaxBackward& args);
}  // namespace cuda

}  // namespace lamina::ops
