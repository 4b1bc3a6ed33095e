#pragma once

#include "lamina/ops/activation/xielu.h"

namespace lamina::ops {

/// Elements whose contributions to the gradients of the learned numbers are summed together.
inline constexpr int64_t kXieluChunk = 4096;

struct XieluForward {
  Tensor x;
  Tensor alpha_p;  ///< [1], accumulation type; likewise alpha_n
  Tensor alpha_n;
  XieluOptions options;
  Tensor y;
};
struct XieluBackward {
  Tensor x;
  Tensor alpha_p;
  Tensor alpha_n;
  Tensor dy;
  XieluOptions options;
  Tensor dx;
  Tensor partial;  ///< [chunks, 2], accumulation type: sums of dy · x² and dy · (expm1(min(x, eps)) − x)
};

namespace cpu {
void xielu_forward(const XieluForward& args);
void xielu_backward(const XieluBackward& args);
}  // namespace cpu
namespace cuda {
void xielu_forward(const XieluForward& args);
void xielu_backward(const XieluBackward& args);
}  // namespace cuda

}  // namespace lamina::ops
