#pragma once

#include "lamina/ops/linear/linear.h"

namespace lamina::ops {

/// Throws an Error naming `op` if linear does not support the arguments.
void check_linear(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias);

/// Kernel arguments. Rows are the leading dimensions of x, flattened.
struct LinearForward {
  Tensor x;       ///< [rows, in]
  Tensor weight;  ///< [out, in], rows or columns contiguous
  Tensor bias;    ///< [out], accumulation type (on a GPU, x's dtype is also allowed), or undefined
  Activation activation;
  Tensor y;              ///< [rows, out]
  Tensor z;              ///< [rows, out]: the argument of the activation; written if defined
  bool settled = false;  ///< see LinearWeight::settled
};
/// Kernel arguments: computes dz = dy · act'(z) and its column sums.
struct LinearActivationBackward {
  Tensor z;  ///< undefined without an activation
  Tensor dy;
  Activation activation;
  Tensor dz;     ///< dtype of dy if the products read that (GPU, bf16 dot products), else the accumulation type;
                 ///< undefined without an activation
  Tensor dbias;  ///< [out], accumulation type, or undefined
};
/// Kernel arguments of the two products dx and dweight. If one of them is undefined, it is not computed.
struct LinearBackward {
  Tensor x;
  Tensor weight;
  Tensor dz;
  Tensor dx;
  Tensor dweight;   ///< accumulation type
  bool accumulate;  ///< add to dweight instead of overwriting it
  Tensor z;         ///< [rows, in], GPU only. If defined, x = gelu_tanh(z), and dx is multiplied by gelu_tanh'(z)
};

namespace cpu {
void linear_forward(const LinearForward& args);
void linear_activation_backward(const LinearActivationBackward& args);
void linear_backward(const LinearBackward& args);
}  // namespace cpu
namespace cuda {
void linear_forward(const LinearForward& args);
/// linear_forward() by cuBLASLt. Supports every call; y must not be empty.
void linear_by_gemm(const LinearForward& args);
void linear_activation_backward(const LinearActivationBackward& args);
void linear_backward(const LinearBackward& args);
}  // namespace cuda

}  // namespace lamina::ops
