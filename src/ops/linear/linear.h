#pragma once

#include "lamina/ops/activation/activation.h"
#include "lamina/tensor/tensor.h"

namespace lamina::ops {

/// y = act(x · weightᵀ + bias)
///   x       [..., in]    any floating type
///   weight  [out, in]    any floating type; f64 only together with x; may be the transpose of a matrix or a slice
///   bias    [out]        any floating type, or undefined
///   y       [..., out]   x's type
/// Summed in f32 (f64 for f64); bias and activation are applied to blocks of rows while they are in cache. A call with
/// in = 0 gives act(bias).
///
/// Backward, with z the argument of act (kept, in x's type, when an activation is fused) and dz = dy · act'(z):
///   dx = dz · weight        dweight = dzᵀ · x        dbias = Σ_rows dz
/// dweight and dbias are handed over in the accumulation type, dweight straight into the gradient's buffer where that
/// has this type.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, Activation activation = Activation::none);

/// Throws an Error that names `op` where linear does not take the arguments.
void check_linear(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias);

/// What the kernels are given; rows are x's leading dimensions taken together.
struct LinearForward {
  Tensor x;       ///< [rows, in]
  Tensor weight;  ///< [out, in], rows or columns dense
  Tensor bias;    ///< [out], accumulation type (on a GPU x's, too), or undefined
  Activation activation;
  Tensor y;  ///< [rows, out]
  Tensor z;  ///< [rows, out], written when defined
};
/// dz = dy · act'(z), and its column sums.
struct LinearActivationBackward {
  Tensor z;  ///< undefined without an activation
  Tensor dy;
  Activation activation;
  Tensor dz;     ///< accumulation type (on a GPU dy's, which its products take); undefined without an activation
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
  Tensor z;         ///< [rows, in], only on a GPU: dx becomes dx · gelu_tanh'(z), for x = gelu_tanh(z)
};

namespace cpu {
void linear_forward(const LinearForward& args);
void linear_activation_backward(const LinearActivationBackward& args);
void linear_backward(const LinearBackward& args);
}  // namespace cpu
namespace cuda {
void linear_forward(const LinearForward& args);
void linear_activation_backward(const LinearActivationBackward& args);
void linear_backward(const LinearBackward& args);
}  // namespace cuda

}  // namespace lamina::ops
