#pragma once

#include "lamina/ops/launch.h"

namespace lamina::ops {

/// weight + offset in the accumulation type of `like`; undefined if there is no weight. On a GPU, a weight of dtype
/// `like` without offset is returned as it is, because the kernels also accept it.
inline Tensor norm_scale(const Tensor& weight, double offset, DType like) {
  if (!weight.defined()) return {};
  const bool on_gpu = weight.device().like() == DeviceKind::cuda;
  if (on_gpu && offset == 0.0 && weight.dtype() == like) return weight.detach().contiguous();
  Tensor scale = as_accumulation(weight, like);
  if (offset == 0.0) return scale;
  return Tensor::full(weight.shape(), offset, scale.dtype(), weight.device()).add_(scale);
}

}  // namespace lamina::ops
