#pragma once

#include "lamina/tensor/tensor.h"

namespace lamina::ops {

enum class Reduction : uint8_t { mean, sum, none };

struct CrossEntropyOptions {
  /// Positions with this target count for nothing: no loss, no gradient, not part of the mean.
  int64_t ignore_index = -100;
  /// ε: the share of the target's probability spread evenly over all classes.
  double label_smoothing = 0.0;
  /// Weight of (log Σ exp u)², which keeps the logits' scale in place (PaLM, arXiv:2204.02311).
  double z_loss = 0.0;
  /// c of c·tanh(z/c); 0 means none.
  double soft_cap = 0.0;
  /// The logits are multiplied by this before anything else.
  double logit_scale = 1.0;
  Reduction reduction = Reduction::mean;
};

/// Per position, with u = soft_cap(logit_scale · logits), V classes and lse = log Σ exp u:
///   loss = lse − (1−ε)·u[target] − ε·mean(u) + z_loss·lse²
///   logits   [..., V]   any floating type
///   targets  [...]      i64, in [0, V) or ignore_index; anything else is an error
///   result   one number, or [...] for Reduction::none; the accumulation type (f32, or f64 for f64)
/// The mean is over the positions not ignored; where all are, the loss is 0 and so are the gradients.
///
/// Backward, p = softmax(u): du = p·(1 + 2·z_loss·lse) − (1−ε)·onehot − ε/V, and
/// dlogits = du · (1 − (u/soft_cap)²) · logit_scale, times the position's share of the incoming gradient.
Tensor cross_entropy(const Tensor& logits, const Tensor& targets, const CrossEntropyOptions& options = {});

/// cross_entropy(x · weightᵀ + bias, targets) without the logits ever being whole in memory: rows are taken in chunks
/// of less than an eighth, at most 480 (on a GPU 8192), and where gradients are followed they are computed with the
/// loss, so that the logits are computed once; backward only multiplies by the incoming gradient. (Reduction::none
/// computes them again instead: its gradients per position are not known before.)
///   x        [..., d]   any floating type
///   weight   [V, d]     any floating type; f64 only together with x
///   targets  [...]      i64
///   bias     [V]        any floating type, or undefined
/// dx = dlogits · weight, dweight = dlogitsᵀ · x, dbias = Σ_rows dlogits, the last two in the accumulation type.
/// Precision: products are summed in the accumulation type, and all that comes after the logits is computed in it. In
/// between the CPU keeps the logits in the accumulation type, a GPU keeps them and their gradients in x's type: a logit
/// of bf16 is off by up to 1/512 of itself, with gradients and without.
Tensor linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& targets,
                            const CrossEntropyOptions& options = {}, const Tensor& bias = {});

/// Rows whose logits a GPU holds at once: it wants much to do, and dweight read and written rarely.
inline constexpr int64_t kLossRowsOnGpu = 8192;

/// Loss of every row and, with `loss` defined, their sum or mean.
struct CrossEntropyForward {
  Tensor logits;   ///< [rows, V]
  Tensor targets;  ///< [rows]
  CrossEntropyOptions options;
  Tensor losses;  ///< [rows], accumulation type
  Tensor lse;     ///< [rows], accumulation type
  Tensor loss;    ///< one number, or undefined for Reduction::none
};
struct CrossEntropyBackward {
  Tensor logits;
  Tensor targets;
  CrossEntropyOptions options;
  Tensor lse;
  Tensor grad;  ///< of the result: one number, or [rows] for Reduction::none
  Tensor dlogits;
};
/// Losses and gradients of the fused form; undefined gradients are not computed.
struct LinearCrossEntropy {
  Tensor x;       ///< [rows, d]
  Tensor weight;  ///< [V, d]
  Tensor bias;    ///< [V], accumulation type, or undefined
  Tensor targets;
  CrossEntropyOptions options;
  Tensor chunk;    ///< [V, rows at a time], accumulation type: workspace for the logits
  Tensor losses;   ///< [rows]
  Tensor loss;     ///< one number, or undefined for Reduction::none
  Tensor grad;     ///< of the result as above; undefined means 1
  Tensor dx;       ///< x's type
  Tensor dweight;  ///< accumulation type
  Tensor dbias;    ///< accumulation type
};
/// values ·= factor (one number), all of the accumulation type but values, which may be narrower.
struct ScaleByTensor {
  Tensor values;
  Tensor factor;
};

namespace cpu {
void cross_entropy_forward(const CrossEntropyForward& args);
void cross_entropy_backward(const CrossEntropyBackward& args);
void linear_cross_entropy(const LinearCrossEntropy& args);
void scale_by_tensor(const ScaleByTensor& args);
}  // namespace cpu
namespace cuda {
void cross_entropy_forward(const CrossEntropyForward& args);
void cross_entropy_backward(const CrossEntropyBackward& args);
void linear_cross_entropy(const LinearCrossEntropy& args);
void scale_by_tensor(const ScaleByTensor& args);
}  // namespace cuda

}  // namespace lamina::ops
