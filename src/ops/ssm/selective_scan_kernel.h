#pragma once

#include "lamina/ops/ssm/selective_scan.h"

namespace lamina::ops {

constexpr int64_t kScanChunk = 64;  ///< number of positions between two saved states

/// Kernel arguments, shaped as in selective_scan() unless noted. u, delta and z keep their dtype; everything else is in
/// the accumulation type.
struct SelectiveScanForward {
  Tensor u, delta, z;
  Tensor a;  ///< [n, channels]
  Tensor b, c, d, delta_bias, initial_state;
  bool delta_softplus = false;
  Tensor y;
  Tensor last_state;
  Tensor states;  ///< [batch, chunks, n, channels]: states before each chunk; undefined if no gradient is needed
};
struct SelectiveScanBackward {
  SelectiveScanForward forward;  ///< y is not set
  Tensor dy, dlast_state;        ///< dlast_state may be undefined
  Tensor du, ddelta, dz;         ///< dz is defined only if z is
  Tensor da;                     ///< [n, channels]
  Tensor db, dc;
  Tensor dd, ddelta_bias, dinitial_state;  ///< undefined if not needed
};
struct SelectiveScanStep {
  Tensor u, delta, z, a, b, c, d, delta_bias;  ///< a is [channels, n]
  bool delta_softplus = false;
  Tensor state;
  Tensor y;
};

namespace cpu {
void selective_scan_forward(const SelectiveScanForward& args);
void selective_scan_backward(const SelectiveScanBackward& args);
void selective_scan_step(const SelectiveScanStep& args);
}  // namespace cpu
namespace cuda {
void selective_scan_forward(const SelectiveScanForward& args);
void selective_scan_backward(const SelectiveScanBackward& args);
void selective_scan_step(const SelectiveScanStep& args);
}  // namespace cuda

}  // namespace lamina::ops
