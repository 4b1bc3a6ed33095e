#pragma once

#include "lamina/ops/activation/xielu.h"

namespace lamina::ops {

/// Elements per partial sum of the gradients of alpha_p and alpha_n.
inline constexpr int64_t kXieluChunk = 4096;

/// Kernel arguments, shaped as in xielu().
struct XieluForward {
  Tensor x;
  Tensor alpha_p;  ///< [1], accumulation type, as is alpha_n
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
  Tensor partial;  ///< [chunks, 2], accumulation type: Σ dy · x² over x > 0, Σ dy · (expm1(min(x, eps)) − x) elsewhere
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
