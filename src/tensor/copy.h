#pragma once

#include "lamina/tensor/tensor.h"

namespace lamina::cpu {

/// Copies with conversion between tensors of equal shape, of any strides and dtypes.
void copy(const Tensor& source, Tensor& target);
/// target += source for floating dtypes and any strides.
void accumulate(const Tensor& source, Tensor& target);
void fill(Tensor& target, double value);

}  // namespace lamina::cpu
