#pragma once

#include <functional>
#include <vector>

#include "lamina/ops/optim/slots.h"

namespace lamina::ops {

/// Factor on the learning rate of a matrix [rows, cols].
enum class MuonScale : uint8_t {
  aspect,       ///< sqrt(max(1, rows / cols))
  match_adamw,  ///< 0.2 · sqrt(max(rows, cols)): updates as large as AdamW's, so AdamW's learning rate can be reused
};

/// Options of muon().
struct MuonOptions {
  double momentum = 0.95;               ///< decay of the momentum
  bool nesterov = true;                 ///< Nesterov momentum: the update looks one step ahead
  int steps = 5;                        ///< Newton–Schulz iterations
  double eps = 1e-7;                    ///< lower limit of the norm by which the update is divided
  MuonScale scale = MuonScale::aspect;  ///< factor on the learning rate
};

/// Parameter, gradient and state of one tensor for muon().
struct MuonSlot : ParamSlot {
  Tensor momentum;  ///< f32 (f64 for f64), initially zeros; updated
  /// Row counts of the matrices that are packed into param along its rows, such as q, k and v; empty: a single matrix.
  std::vector<int64_t> parts = {};
  /// For parameters divided over ranks (tensor parallel): returns the whole tensor, given this rank's part of param or
  /// of a tensor like it. All ranks call muon() with the same parameters. `parts` then describes the whole tensor.
  /// own_part is the inverse: it returns this rank's part of a whole tensor.
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
