#pragma once

#include "lamina/base/ignore_index.h"
#include "lamina/tensor/tensor.h"

namespace lamina::comm {
class Communicator;
}

namespace lamina::ops {

/// How the losses of all positions are combined: their mean, their sum, or none (one loss per position).
enum class Reduction : uint8_t { mean, sum, none };

/// Options of cross_entropy() and linear_cross_entropy().
struct CrossEntropyOptions {
  /// Positions with this target are ignored: they have no loss and no gradient and do not count in the mean.
  int64_t ignore_index = kIgnoreIndex;
  /// ε: this part of the target's probability is spread evenly over all classes.
  double label_smoothing = 0.0;
  /// Weight of the penalty (log Σ exp u)², which keeps the logits from drifting (PaLM, arXiv:2204.02311).
  double z_loss = 0.0;
  /// c in u = c·tanh(z/c), which bounds the logits z; 0: none.
  double soft_cap = 0.0;
  /// Multiplies the logits before anything else.
  double logit_scale = 1.0;
  Reduction reduction = Reduction::mean;  ///< how the losses of all positions are combined
};

/// Cross entropy loss. Per position, with u = soft_cap(logit_scale · logits), V classes and lse = log Σ exp u:
///   loss = lse − (1−ε)·u[target] − ε·mean(u) + z_loss·lse²
///   logits   [..., V]   any floating type
///   targets  [...]      i64, in [0, V) or ignore_index; anything else is an error
///   result   scalar, or [...] for Reduction::none; in the accumulation type (f32, or f64 for f64)
/// The mean is over the positions not ignored; if all are ignored, loss and gradients are 0.
///
/// Backward, p = softmax(u): du = p·(1 + 2·z_loss·lse) − (1−ε)·onehot − ε/V, and
/// dlogits = du · (1 − (u/soft_cap)²) · logit_scale, times the incoming gradient and the mean's 1/count.
Tensor cross_entropy(const Tensor& logits, const Tensor& targets, const CrossEntropyOptions& options = {});

/// The classes that this rank holds if several ranks divide the vocabulary (tensor parallel), in rank order.
struct ClassShard {
  comm::Communicator* ranks = nullptr;  ///< null: this rank holds all classes
  int64_t first = 0;                    ///< number of the first class held here
  int64_t classes = 0;                  ///< number of classes of all ranks together
};

/// cross_entropy(x · weightᵀ + bias, targets) without storing all logits at once. Rows are processed in chunks: on a
/// CPU about an eighth of them (48 to 480), on a GPU up to 8192. If a tape records, the gradients are computed together
/// with the loss, so each logit is computed once; backward only scales them by the incoming gradient. Reduction::none
/// recomputes the logits in backward, because its incoming gradient differs per position.
///   x        [..., d]   any floating type
///   weight   [V, d]     any floating type; f64 only together with x
///   targets  [...]      i64
///   bias     [V]        any floating type, or undefined
/// dx = dlogits · weight, dweight = dlogitsᵀ · x, dbias = Σ_rows dlogits; the last two in the accumulation type.
/// Precision: GEMMs accumulate in the accumulation type, and everything after the logits is computed in it. The CPU
/// also stores the logits in it. A GPU stores them and their gradients in x's dtype, so a bf16 logit has a relative
/// error of up to 1/512.
///
/// With `shard` (not supported for Reduction::none), weight and bias hold this rank's classes and V is shard.classes.
/// All ranks call this with the same x and targets. For each chunk of rows they exchange log Σ exp u, Σ u and u[target]
/// over their classes. So every rank gets the same loss. dweight and dbias are complete; dx is this rank's part of a
/// sum over ranks (see ops::share_with_ranks).
Tensor linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& targets,
                            const CrossEntropyOptions& options = {}, const Tensor& bias = {},
                            const ClassShard& shard = {});

}  // namespace lamina::ops
