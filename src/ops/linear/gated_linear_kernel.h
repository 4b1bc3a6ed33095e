#pragma once

#include "lamina/ops/linear/gated_linear.h"

namespace lamina::ops {

/// Kernel arguments, for few rows on a GPU.
struct GatedLinearForward {
  Tensor x;       ///< [rows, in], contiguous, at most kFewRows rows
  Tensor weight;  ///< [2·n, in], rows or columns contiguous
  Tensor bias;    ///< [2·n], accumulation type, or undefined
  Gate gate;
  GateOptions options;
  Tensor y;              ///< [rows, n]
  bool settled = false;  ///< see LinearWeight::settled
};
/// gated_linear() with arguments that were already checked.
Tensor run_gated_linear(const Tensor& x, const Tensor& weight, const Tensor& bias, Gate gate,
                        const GateOptions& options, bool settled);
namespace cuda {
void gated_linear_forward(const GatedLinearForward& args);
}  // namespace cuda

}  // namespace lamina::ops
