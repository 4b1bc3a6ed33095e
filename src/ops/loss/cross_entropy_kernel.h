#pragma once

#include "lamina/ops/loss/cross_entropy.h"

namespace lamina::ops {

/// Rows of logits that a GPU holds at a time: large, to fill the GPU and to update dweight rarely.
inline constexpr int64_t kLossRowsOnGpu = 8192;

/// Loss of every row and, if `loss` is defined, their sum or mean.
struct CrossEntropyForward {
  Tensor logits;   ///< [rows, V]
  Tensor targets;  ///< [rows]
  CrossEntropyOptions options;
  Tensor losses;  ///< [rows], accumulation type
  Tensor lse;     ///< [rows], accumulation type
  Tensor loss;    ///< scalar, or undefined for Reduction::none
};
struct CrossEntropyBackward {
  Tensor logits;
  Tensor targets;
  CrossEntropyOptions options;
  Tensor lse;
  Tensor grad;  ///< gradient of the result: scalar, or [rows] for Reduction::none
  Tensor dlogits;
};
/// Losses and gradients of linear_cross_entropy; undefined gradients are not computed.
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
  Tensor grad;     ///< gradient of the result as above; undefined means 1
  Tensor dx;       ///< x's type
  Tensor dweight;  ///< accumulation type
  Tensor dbias;    ///< accumulation type
};
/// values ·= factor (a scalar in the accumulation type); values may have a narrower dtype.
struct ScaleByTensor {
  Tensor values;
  Tensor factor;
};

/// Exchanges the sums of one chunk's rows between the ranks of args.shard: `values` [3 · rows] of this rank → those of
/// all ranks, in rank order.
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
