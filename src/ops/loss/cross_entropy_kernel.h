#pragma once

#include "lamina/ops/loss/cross_entropy.h"

namespace lamina::ops {

/// Rows per chunk of linear_cross_entropy on a GPU: many, to fill the GPU and to update dweight rarely.
inline constexpr int64_t kLossRowsOnGpu = 8192;

/// Kernel arguments: computes the loss of every row and, if `loss` is defined, their sum or mean.
struct CrossEntropyForward {
  Tensor logits;   ///< [rows, V]
  Tensor targets;  ///< [rows]
  CrossEntropyOptions options;
  Tensor losses;  ///< [rows], accumulation type
  Tensor lse;     ///< [rows], accumulation type
  Tensor loss;    ///< scalar, or undefined for Reduction::none
};
/// Kernel arguments; lse is the output of forward.
struct CrossEntropyBackward {
  Tensor logits;
  Tensor targets;
  CrossEntropyOptions options;
  Tensor lse;
  Tensor grad;  ///< gradient of the result: scalar, or [rows] for Reduction::none
  Tensor dlogits;
};
/// Kernel arguments of linear_cross_entropy, which computes losses and gradients. Undefined gradients are not computed.
struct LinearCrossEntropy {
  Tensor x;       ///< [rows, d]
  Tensor weight;  ///< [V, d]
  Tensor bias;    ///< [V], accumulation type, or undefined
  Tensor targets;
  CrossEntropyOptions options;
  ClassShard shard;
  Tensor chunk;    ///< [V, rows of a chunk], accumulation type: workspace for the logits
  Tensor losses;   ///< [rows]
  Tensor loss;     ///< scalar, or undefined for Reduction::none
  Tensor grad;     ///< gradient of the result, as in CrossEntropyBackward; undefined: 1
  Tensor dx;       ///< x's type
  Tensor dweight;  ///< accumulation type
  Tensor dbias;    ///< accumulation type
};
/// Kernel arguments: values ← values · factor. `factor` is a scalar tensor in the accumulation type; `values` may have
/// a narrower dtype.
struct ScaleByTensor {
  Tensor values;
  Tensor factor;
};

/// All-gather of per-row sums over the ranks of args.shard: from this rank's `values` [3 · rows] to those of all ranks
/// [ranks · 3 · rows], in rank order.
Tensor exchange_class_sums(const LinearCrossEntropy& args, const Tensor& values);

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
