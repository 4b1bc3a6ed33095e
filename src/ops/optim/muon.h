#pragma once

#include <vector>

#include "lamina/ops/optim/slots.h"

namespace lamina::ops {

/// By what the learning rate of a [rows, cols] matrix is multiplied.
enum class MuonScale : uint8_t {
  aspect,       ///< sqrt(max(1, rows / cols))
  match_adamw,  ///< 0.2 · sqrt(max(rows, cols)): updates as large as AdamW's, so that its learning rate can be kept
};

struct MuonOptions {
  double momentum = 0.95;
  bool nesterov = true;
  int steps = 5;  ///< of the Newton–Schulz iteration
  double eps = 1e-7;
  MuonScale scale = MuonScale::aspect;
};

struct MuonSlot : ParamSlot {
  Tensor momentum;  ///< f32 (f64 for f64), zeros at first; written
};

/// One step of momentum whose update is orthogonalised, for parameters of rank 2 [rows, cols]:
///   b ← b + (1 − momentum) · (g − b)         u = nesterov ? g + momentum · (b − g) : b
///   X = u / max(‖u‖, eps), then `steps` times  A = X·Xᵀ,  X ← 3.4445·X + (−4.7750·A + 2.0315·A²)·X
///   p ← p · (1 − lr · weight_decay) − lr · scale · X
/// Where rows > cols, A = Xᵀ·X stands on the right: the smaller square, the same result. The iteration takes all
/// singular values close to one (0.7 to 1.2). Products and sums in f32 (f64 for f64), the norm in f64. Jordan et al.
/// 2024, https://kellerjordan.github.io/posts/muon; Liu et al. 2025, arXiv:2502.16982 for the second scale.
void muon(std::vector<MuonSlot> slots, const MuonOptions& options = {});

/// The coefficients of the iteration.
struct NewtonSchulz {
  static constexpr double kLinear = 3.4445;
  static constexpr double kCubic = -4.7750;
  static constexpr double kQuintic = 2.0315;
};

/// What the kernels of one matrix are given; `update` [rows, cols] is in the type of the arithmetic.
struct MuonMatrix {
  MuonSlot slot;
  Tensor update;
  MuonOptions options;
};

namespace cpu {
/// b and u of the formula.
void muon_momentum(const MuonMatrix& args);
/// u ← X.
void muon_orthogonalize(const MuonMatrix& args);
/// p of the formula, from X.
void muon_apply(const MuonMatrix& args, double scaled_lr);
}  // namespace cpu
namespace cuda {
void muon_momentum(const MuonMatrix& args);
void muon_orthogonalize(const MuonMatrix& args);
void muon_apply(const MuonMatrix& args, double scaled_lr);
}  // namespace cuda

}  // namespace lamina::ops
