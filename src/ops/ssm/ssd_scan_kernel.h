#pragma once

#include "lamina/ops/ssm/ssd_scan.h"

namespace lamina::ops {

/// Kernel arguments, shaped as in ssd_scan(). x and dt keep their dtype; everything else is in the accumulation type.
struct SsdForward {
  Tensor x, dt;
  Tensor a, b, c, d, dt_bias;
  SsdExtras options;  ///< the scalar options; the tensors in it are not used
  Tensor y;
  Tensor state;   ///< [batch, heads, head_dim, n]: the initial state; overwritten by the last state
  Tensor states;  ///< [batch, chunks, heads, head_dim, n]: states before each chunk; undefined if no gradient is needed
};
struct SsdBackward {
  SsdForward forward;  ///< y and state are not set
  Tensor dy;
  Tensor dstate;  ///< gradient of the last state; overwritten by that of the initial state
  Tensor dx, ddt;
  Tensor da, db, dc, dd, ddt_bias;  ///< dd and ddt_bias may be undefined
};
/// Kernel arguments of ssd_step(), all in the accumulation type.
struct SsdStep {
  Tensor x, dt, a, b, c, d, dt_bias;
  SsdExtras options;
  Tensor state;
  Tensor y;
};

namespace cpu {
void ssd_forward(const SsdForward& args);
void ssd_backward(const SsdBackward& args);
void ssd_step(const SsdStep& args);
}  // namespace cpu
namespace cuda {
void ssd_forward(const SsdForward& args);
void ssd_backward(const SsdBackward& args);
void ssd_step(const SsdStep& args);
}  // namespace cuda

}  // namespace lamina::ops
