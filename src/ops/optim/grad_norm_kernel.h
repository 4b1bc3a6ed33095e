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

namespace cpu {
void clip_factor(const ClipFactor& args);
void sum_of_squares(const std::vector<Tensor>& tensors, GradNorm& result);
void scale_tensors(const std::vector<Tensor>& tensors, double factor);
}  // namespace cpu
namespace cuda {
void clip_factor(const ClipFactor& args);
void sum_of_squares(const std::vector<Tensor>& tensors, GradNorm& result);
void scale_tensors(const std::vector<Tensor>& tensors, double factor);
}  // namespace cuda

}  // namespace lamina::ops
