#pragma once

#include <vector>

#include "lamina/ops/optim/slots.h"

namespace lamina::ops {

/// Options of adamw().
struct AdamWOptions {
  double beta1 = 0.9;    ///< decay of the first moment
  double beta2 = 0.999;  ///< decay of the second moment
  double eps = 1e-8;     ///< added to the root of the second moment
  /// Per-step values in device memory, [4] f32 on the slots' GPU, so that a step captured as a CUDA graph can be
  /// replayed: a factor on every slot's lr, 1 / (1 − β1^step), 1 / sqrt(1 − β2^step), and a factor on the gradients as
  /// clip_factor writes it (if negative, nothing is updated). The slots' `step` is then ignored. Undefined: only lr and
  /// step of the slots are used.
  Tensor dynamics = {};
};

/// One parameter of adamw() with its state.
struct AdamWSlot : ParamSlot {
  Tensor m;          ///< first moment, f32 (f64 for f64); updated
  Tensor v;          ///< second moment, likewise
  int64_t step = 1;  ///< 1-based number of this update, for the bias correction
};

/// One AdamW step (Adam with decoupled weight decay) for all slots in one pass, in PyTorch's order of operations:
///   p ← p · (1 − lr · weight_decay)
///   m ← β1·m + (1 − β1)·g        v ← β2·v + (1 − β2)·g²
///   p ← p − lr / (1 − β1^step) · m / ( sqrt(v) / sqrt(1 − β2^step) + eps )
/// Loshchilov & Hutter 2019, arXiv:1711.05101. Parameters must not overlap in memory.
void adamw(std::vector<AdamWSlot> slots, const AdamWOptions& options = {});

}  // namespace lamina::ops
