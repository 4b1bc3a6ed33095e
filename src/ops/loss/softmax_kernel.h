#pragma once

#include "lamina/ops/loss/softmax.h"

namespace lamina::ops {

/// Kernel arguments; all tensors have the same shape, and `log` selects log_softmax().
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
