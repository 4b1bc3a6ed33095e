#pragma once

// Cross entropy over rows of logits on a GPU, for cross_entropy and linear_cross_entropy. cross_entropy_cuda.cu defines
// these functions and explains the strategy.

#include "lamina/ops/loss/cross_entropy.h"

namespace lamina::ops::cuda {

/// Rows of logits and the requested outputs: losses, gradients or both.
struct CrossEntropyRows {
  Tensor logits;   ///< [rows, V] f32, bf16 or f16, rows contiguous
  Tensor targets;  ///< [rows] i64, contiguous
  Tensor bias;     ///< [V] f32, added to the logits first, or undefined
  CrossEntropyOptions options;
  Tensor losses;   ///< [rows] f32 output; undefined if lse is given
  Tensor lse;      ///< [rows] f32: output together with the losses, else input; undefined if not needed later
  Tensor share;    ///< f32 scalar that multiplies the gradients (see target_share); undefined: 1
  Tensor grad;     ///< f32 gradient of the result: scalar, or [rows] for Reduction::none; undefined: 1
  Tensor dlogits;  ///< shape and dtype of logits, may alias them; undefined: not computed
};

/// Computes loss and lse of each row from one read of the logits, then writes dlogits. Ignored rows give zeros; an
/// invalid target is reported as a Fault and ignored.
void cross_entropy_rows(const CrossEntropyRows& args);

/// share [1] f32 = the factor of one position's loss in the result: for the mean 1 / (number of targets not ignored),
/// or 0 if all are ignored; otherwise 1.
void target_share(const Tensor& targets, int64_t classes, const CrossEntropyOptions& options, const Tensor& share);

/// loss = Σ losses (accumulated in f64), for the mean divided by the number of targets not ignored.
void add_losses(const Tensor& losses, const Tensor& targets, int64_t classes, const CrossEntropyOptions& options,
                const Tensor& loss);

}  // namespace lamina::ops::cuda
