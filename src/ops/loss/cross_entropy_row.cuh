#pragma once

// Cross entropy over rows of logits on a cuda device, for the plain operator and for the one fused with a product. The
// strategy stands in cross_entropy_cuda.cu, which defines these.

#include "lamina/ops/loss/cross_entropy.h"

namespace lamina::ops::cuda {

/// Rows of logits whose losses are wanted, or gradients, or both.
struct CrossEntropyRows {
  Tensor logits;   ///< [rows, V] f32, bf16 or f16, rows dense
  Tensor targets;  ///< [rows] i64, dense
  Tensor bias;     ///< [V] f32 added to the logits first, or undefined
  CrossEntropyOptions options;
  Tensor losses;   ///< [rows] f32, written; undefined where lse is known
  Tensor lse;      ///< [rows] f32: written with the losses, else read; may be undefined where nobody reads it later
  Tensor share;    ///< f32, one number by which gradients are multiplied (see target_share), or undefined: 1
  Tensor grad;     ///< f32 of the result: one number, or [rows] for Reduction::none; undefined: 1
  Tensor dlogits;  ///< logits' shape and type, may be `logits` itself; undefined: none
};

/// Loss and lse of each row from one read of the logits, then dlogits in one write. Ignored rows give zeros;
/// a target that is no class is reported and ignored.
void cross_entropy_rows(const CrossEntropyRows& args);

/// share [1] f32 = what one position's loss is multiplied by in the result: 1 / (targets that count) for the mean (0
/// where none does), else 1.
void target_share(const Tensor& targets, int64_t classes, const CrossEntropyOptions& options, const Tensor& share);

/// loss = Σ losses (added in f64), divided by the number of targets that count for the mean.
void add_losses(const Tensor& losses, const Tensor& targets, int64_t classes, const CrossEntropyOptions& options,
                const Tensor& loss);

}  // namespace lamina::ops::cuda
