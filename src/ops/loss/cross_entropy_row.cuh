#pragma once

// Cross entropy of rows of logits on a GPU. Used by cross_entropy and linear_cross_entropy; cross_entropy_cuda.cu
// defines these functions and explains the strategy.

#include "lamina/ops/loss/cross_entropy.h"

namespace lamina::ops::cuda {

/// Rows of logits, and the requested outputs: losses, gradients or both.
struct CrossEntropyRows {
  Tensor logits;   ///< [rows, V] f32, bf16 or f16, rows contiguous
  Tensor targets;  ///< [rows] i64, contiguous
  Tensor bias;     ///< [V] f32, added to the logits before anything else; or undefined
  CrossEntropyOptions options;
  Tensor losses;   ///< [rows] f32 output; undefined if lse is given
  Tensor lse;      ///< [rows] f32: output if losses are computed, else input; undefined if not needed later
  Tensor share;    ///< f32 scalar that multiplies the gradients (see target_share); undefined: 1
  Tensor grad;     ///< f32 gradient of the result: scalar, or [rows] for Reduction::none; undefined: 1
  Tensor dlogits;  ///< shape and dtype of logits, may alias them; undefined: not computed
};

/// Computes losses and lse of the rows and then dlogits, each if requested. Ignored rows give zeros. An invalid target
/// is reported as a Fault, and its row is ignored.
void cross_entropy_rows(const CrossEntropyRows& args);

/// Writes share [1] f32, the factor with which one position's loss enters the result. For the mean: 1 / (number of
/// targets not ignored), or 0 if all are ignored. Otherwise 1.
void target_share(const Tensor& targets, int64_t classes, const CrossEntropyOptions& options, const Tensor& share);

/// Writes loss = Σ losses (accumulated in f64); for the mean, divided by the number of targets not ignored.
void add_losses(const Tensor& losses, const Tensor& targets, int64_t classes, const CrossEntropyOptions& options,
                const Tensor& loss);

}  // namespace lamina::ops::cuda
