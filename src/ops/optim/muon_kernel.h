#pragma once

#include "lamina/ops/optim/muon.h"

namespace lamina::ops {

/// Coefficients of the Newton–Schulz iteration X ← kLinear·X + (kCubic·A + kQuintic·A²)·X.
struct NewtonSchulz {
  static constexpr double kLinear = 3.4445;
  static constexpr double kCubic = -4.7750;
  static constexpr double kQuintic = 2.0315;
};

/// Kernel arguments for one matrix. `update` [rows, cols] has the accumulation type and holds u, then X of the formula
/// in muon.h.
struct MuonMatrix {
  MuonSlot slot;
  Tensor update;
  MuonOptions options;
};

namespace cpu {
/// update ← u, after updating the momentum b.
void muon_momentum(const MuonMatrix& args);
/// update ← X, the result of the iterations that start from u.
void muon_orthogonalize(const MuonMatrix& args);
/// Updates param from X; `scaled_lr` is lr · scale.
void muon_apply(const MuonMatrix& args, double scaled_lr);
}  // namespace cpu
namespace cuda {
void muon_momentum(const MuonMatrix& args);
void muon_orthogonalize(const MuonMatrix& args);
void muon_apply(const MuonMatrix& args, double scaled_lr);
}  // namespace cuda

}  // namespace lamina::ops
