#pragma once

#include "lamina/ops/linear/linear_kernel.h"
#include "lamina/ops/linear/norm_linear.h"

namespace lamina::ops {

/// Throws an Error that names `op` if norm_linear() does not support the norm or the residual.
void check_row_norm(const char* op, const Tensor& x, const Tensor& residual, const RowNorm& norm);

/// Throws an Error that names `op` if the weight, plain or quantized, does not fit x and the bias.
void check_projection(const char* op, const Tensor& x, const LinearWeight& weight, const Tensor& bias);

/// Kernel arguments, for few rows on a GPU.
struct NormLinearForward {
  Tensor x;         ///< [rows, in], contiguous, at most kFewRows rows
  Tensor residual;  ///< [n, rows, in], contiguous, or undefined
  RowNorm norm;     ///< weight and bias contiguous, accumulation type, or undefined; no groups
  Tensor weight;    ///< [out, in]; for gated units [2·out, in]
  Tensor bias;      ///< accumulation type, or undefined
  Activation activation = Activation::none;
  bool gated = false;
  Gate gate = Gate::swiglu;
  GateOptions options;
  Tensor h;  ///< [rows, in], written if there is a residual
  Tensor y;  ///< [rows, out]
};
namespace cuda {
/// Computes few rows in one launch. If no kernel supports the case, sets `done` to false and writes nothing.
void norm_linear_forward(const NormLinearForward& args, bool& done);
}  // namespace cuda

}  // namespace lamina::ops
