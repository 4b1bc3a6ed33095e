#pragma once

#include "lamina/tensor/tensor.h"

namespace lamina::cpu {

/// Copies between tensors of equal shape, with any strides and dtypes; converts if the dtypes differ.
void copy(const Tensor& source, Tensor& target);
/// target += source for floating dtypes and any strides.
void accumulate(const Tensor& source, Tensor& target);
void fill(Tensor& target, double value);

}  // namespace lamina::cpu
