#pragma once

#include "lamina/tensor/tensor.h"

namespace lamina::cpu {

/// Element-wise conversion between any strides and types of equal shape.
void copy(const Tensor& source, Tensor& target);
/// target += source, element by element, for floating types of any strides.
void accumulate(const Tensor& source, Tensor& target);
void fill(Tensor& target, double value);

}  // namespace lamina::cpu
