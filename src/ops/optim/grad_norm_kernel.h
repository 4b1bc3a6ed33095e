#pragma once

#include "lamina/ops/optim/grad_norm.h"

namespace lamina::ops {

/// Kernel arguments of clip_factor.
struct ClipFactor {
  std::vector<Tensor> grads;
  double max_norm;
  Tensor norm;
  Tensor factor;
};

/// Kernel arguments of chunk_squares.
struct ChunkSquares {
  std::vector<Tensor> tensors;
  int64_t chunk;
  std::vector<double> sums;  ///< written by the kernel; one element per chunk
};

namespace cpu {
void chunk_squares(ChunkSquares& args);
void clip_factor(const ClipFactor& args);
void sum_of_squares(const std::vector<Tensor>& tensors, GradNorm& result);
void scale_tensors(const std::vector<Tensor>& tensors, double factor);
}  // namespace cpu
namespace cuda {
void chunk_squares(ChunkSquares& args);
void clip_factor(const ClipFactor& args);
void sum_of_squares(const std::vector<Tensor>& tensors, GradNorm& result);
void scale_tensors(const std::vector<Tensor>& tensors, double factor);
}  // namespace cuda

}  // namespace lamina::ops
