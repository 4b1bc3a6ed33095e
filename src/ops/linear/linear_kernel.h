#pragma once

#include "lamina/ops/linear/linear.h"

namespace lamina::ops {

/// Throws an Error naming `op` if linear does not support the arguments.
void check_linear(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias);

/// Kernel arguments; rows are the leading dimensions of x, flattened.
struct LinearForward {
  Tensor x;       ///< [rows, in]
  Tensor weight;  ///< [out, in], rows or columns contiguous
  Tensor bias;    ///< [out], accumulation type (on a GPU also that of x), or undefined
  Activation activation;
  Tensor y;              ///< [rows, out]
  Tensor z;              ///< [rows, out], written if defined
  bool settled = false;  ///< LinearWeight::settled
};
/// dz = dy · act'(z), and its column sums.
struct LinearActivationBackward {
  Tensor z;  ///< undefined without an activation
  Tensor dy;
  Activation activation;
  Tensor dz;     ///< dtype of dy if products read that (GPU, bf16 dot products), else the accumulation type; undefined
                 ///< without an activation
  Tensor dbias;  ///< [out], accumulation type, or undefined
};
/// The two products; an undefined dx or dweight is not computed.
struct LinearBackward {
  Tensor x;
  Tensor weight;
  Tensor dz;
  Tensor dx;
  Tensor dweight;   ///< accumulation type
  bool accumulate;  ///< add to dweight instead of overwriting it
  Tensor z;         ///< [rows, in], GPU only: dx becomes dx · gelu_tanh'(z), for x = gelu_tanh(z)
};

namespace cpu {
void linear_forward(const LinearForward& args);
void linear_activation_backward(const LinearActivationBackward& args);
void linear_backward(const LinearBackward& args);
}  // namespace cpu
namespace cuda {
void linear_forward(const LinearForward& args);
/// linear_forward by cuBLASLt, for every case; y is not empty.
void linear_by_gemm(const LinearForward& args);
void linear_activation_backward(const LinearActivationBackward& args);
void linear_backward(const LinearBackward& args);
}  // namespace cuda

}  // namespace lamina::ops
