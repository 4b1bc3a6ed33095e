#pragma once

#include <vector>

#include "lamina/ops/optim/slots.h"

namespace lamina::ops {

/// Options of adamw().
struct AdamWOptions {
  double beta1 = 0.9;    ///< decay of the first moment
  double beta2 = 0.999;  ///< decay of the second moment
  double eps = 1e-8;     ///< added to the root of the second moment
  /// Values of this step in device memory, [4] f32 on the slots' GPU, so that a step captured as a CUDA graph can be
  /// replayed with new values:
  ///   [0] factor on every slot's lr
  ///   [1] 1 / (1 − β1^step)
  ///   [2] 1 / sqrt(1 − β2^step)
  ///   [3] factor on the gradients, as written by clip_factor(); if negative, nothing is updated
  /// The slots' `step` is then ignored. Undefined: lr and step of the slots are used, without further factors.
  Tensor dynamics = {};
};

/// Parameter, gradient and state of one tensor for adamw().
struct AdamWSlot : ParamSlot {
  Tensor m;          ///< first moment, f32 (f64 for f64); updated
  Tensor v;          ///< second moment, as m
  int64_t step = 1;  ///< number of this update, starting at 1, for the bias correction
};

/// One AdamW step (Adam with decoupled weight decay) for all slots in one pass, in place, in PyTorch's order of
/// operations:
///   p ← p · (1 − lr · weight_decay)
///   m ← β1·m + (1 − β1)·g        v ← β2·v + (1 − β2)·g²
///   p ← p − lr / (1 − β1^step) · m / ( sqrt(v) / sqrt(1 − β2^step) + eps )
/// Loshchilov & Hutter 2019, arXiv:1711.05101. Parameters must not overlap in memory.
void adamw(std::vector<AdamWSlot> slots, const AdamWOptions& options = {});

}  // namespace lamina::ops
