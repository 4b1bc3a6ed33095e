#pragma once

#include "lamina/ops/ssm/s4d.h"

namespace lamina::ops {

// Kernels of s4d_kernel() and s4d_recurrence().

/// Kernel arguments of s4d_kernel(). Parameters are contiguous f64.
struct S4dKernelForward {
  S4dParameters parameters;
  Tensor kernel;
};
struct S4dKernelBackward {
  S4dParameters parameters;
  Tensor dkernel;
  S4dParameters grads;  ///< f64
};
/// Kernel arguments of s4d_recurrence().
struct S4dScanForward {
  Tensor u;
  S4dParameters parameters;
  Tensor d;              ///< accumulation type, or undefined
  Tensor initial_state;  ///< accumulation type, or undefined
  Tensor y;
  Tensor last_state;
  Tensor states;  ///< [batch, chunks, 2, n, channels]: states before each chunk; undefined if no gradient is needed
};
struct S4dScanBackward {
  S4dScanForward forward;  ///< y is not set
  Tensor dy, dlast_state;  ///< dlast_state may be undefined
  Tensor du;
  Tensor dd, dinitial_state;  ///< undefined if not needed
  S4dParameters grads;        ///< f64
};

namespace cpu {
void s4d_kernel_forward(const S4dKernelForward& args);
void s4d_kernel_backward(const S4dKernelBackward& args);
void s4d_scan_forward(const S4dScanForward& args);
void s4d_scan_backward(const S4dScanBackward& args);
}  // namespace cpu
namespace cuda {
void s4d_kernel_forward(const S4dKernelForward& args);
void s4d_kernel_backward(const S4dKernelBackward& args);
void s4d_scan_forward(const S4dScanForward& args);
void s4d_scan_backward(const S4dScanBackward& args);
}  // namespace cuda

}  // namespace lamina::ops
