#pragma once

#include <functional>
#include <vector>

#include "lamina/ops/optim/slots.h"

namespace lamina::ops {

/// Factor on the learning rate of a [rows, cols] matrix.
enum class MuonScale : uint8_t {
  aspect,       ///< sqrt(max(1, rows / cols))
  match_adamw,  ///< 0.2 · sqrt(max(rows, cols)): updates as large as AdamW's, so AdamW's learning rate can be reused
};

/// Options of muon().
struct MuonOptions {
  double momentum = 0.95;               ///< decay of the momentum
  bool nesterov = true;                 ///< use the momentum of the next step
  int steps = 5;                        ///< Newton–Schulz iterations
  double eps = 1e-7;                    ///< smallest norm that the update is divided by
  MuonScale scale = MuonScale::aspect;  ///< factor on the learning rate
};

/// One parameter of muon() with its state.
struct MuonSlot : ParamSlot {
  Tensor momentum;  ///< f32 (f64 for f64), initially zeros; updated
  /// Rows of the matrices packed into each [rows, cols] of param; empty: a single matrix.
  std::vector<int64_t> parts = {};
  /// If ranks hold parts of the matrices (tensor parallel): the whole of a tensor like param from this rank's part, and
  /// this rank's part of a whole. All ranks call muon() with the same parameters. `parts` are then those of the whole.
  std::function<Tensor(const Tensor& own)> gather = {};
  std::function<Tensor(const Tensor& whole)> own_part = {};  ///< see gather
};

/// One Muon step (momentum with an orthogonalized update) for matrices [rows, cols]:
///   b ← b + (1 − momentum) · (g − b)         u = nesterov ? g + momentum · (b − g) : b
///   X = u / max(‖u‖, eps), then `steps` times  A = X·Xᵀ,  X ← 3.4445·X + (−4.7750·A + 2.0315·A²)·X
///   p ← p · (1 − lr · weight_decay) − lr · scale · X
/// A parameter [..., rows, cols] is a batch of matrices, each with its own update and scale, as if they were separate.
/// If rows > cols, A = Xᵀ·X multiplies from the right: a smaller GEMM, the same result. The iteration brings all
/// singular values close to one (0.7 to 1.2). GEMMs and sums in f32 (f64 for f64), the norm in f64. Jordan et al. 2024,
/// https://kellerjordan.github.io/posts/muon; match_adamw: Liu et al. 2025, arXiv:2502.16982.
void muon(std::vector<MuonSlot> slots, const MuonOptions& options = {});

}  // namespace lamina::ops
