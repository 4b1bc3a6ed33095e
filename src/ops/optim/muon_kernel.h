#pragma once

#include "lamina/ops/optim/muon.h"

namespace lamina::ops {

/// Coefficients of the Newton–Schulz iteration.
struct NewtonSchulz {
  static constexpr double kLinear = 3.4445;
  static constexpr double kCubic = -4.7750;
  static constexpr double kQuintic = 2.0315;
};

/// Kernel arguments for one matrix; `update` [rows, cols] is in the type of the arithmetic.
struct MuonMatrix {
  MuonSlot slot;
  Tensor update;
  MuonOptions options;
};

namespace cpu {
/// Computes b and u of the formula.
void muon_momentum(const MuonMatrix& args);
/// u ← X of the formula.
void muon_orthogonalize(const MuonMatrix& args);
/// Updates p from X.
void muon_apply(const MuonMatrix& args, double scaled_lr);
}  // namespace cpu
namespace cuda {
void muon_momentum(const MuonMatrix& args);
void muon_orthogonalize(const MuonMatrix& args);
void muon_apply(const MuonMatrix& args, double scaled_lr);
}  // namespace cuda

}  // namespace lamina::ops
