#pragma once

#include "lamina/ops/activation/gated_activation.h"

// Kernels of gated_activation(), shaped as there.

namespace lamina::ops {

namespace cpu {
void gated_activation_forward(const Tensor& x, Gate gate, const GateOptions& options, const Tensor& out);
void gated_activation_backward(const Tensor& x, const Tensor& dout, Gate gate, const GateOptions& options,
                               const Tensor& dx);
}  // namespace cpu
namespace cuda {
void gated_activation_forward(const Tensor& x, Gate gate, const GateOptions& options, const Tensor& out);
void gated_activation_backward(const Tensor& x, const Tensor& dout, Gate gate, const GateOptions& options,
                               const Tensor& dx);
}  // namespace cuda

}  // namespace lamina::ops
