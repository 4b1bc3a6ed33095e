#pragma once

#include "lamina/ops/position/rotary.h"

namespace lamina::ops {

/// Kernel arguments, for forward and backward.
struct RotaryArgs {
  Tensor x;  ///< last dimension contiguous
  Tensor cos;
  Tensor sin;        ///< contiguous, accumulation type
  Tensor positions;  ///< contiguous i64, [seq] or [batch, seq], or undefined
  int64_t offset;
  int64_t rotary_dim;
  RotaryPairing pairing;
  bool transposed;  ///< apply the transposed map, as backward does
  Tensor y;         ///< last dimension contiguous; may be x itself
};

/// The kernel arguments without x and y. Throws if x, tables and options do not fit together.
RotaryArgs checked_rotary(const char* op, const Tensor& x, const Tensor& cos, const Tensor& sin,
                          const RotaryOptions& options);

namespace cpu {
void rotary(const RotaryArgs& args);
}  // namespace cpu
namespace cuda {
void rotary(const RotaryArgs& args);
}  // namespace cuda

}  // namespace lamina::ops
