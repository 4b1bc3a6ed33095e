#pragma once

#include <vector>

#include "lamina/tensor/tensor.h"

namespace lamina::ops {

/// Concatenates tensors of one dtype and device along `axis` (negative counts from the end); the other extents must be
/// equal. Backward: each input receives its slice of the gradient.
Tensor concat(const std::vector<Tensor>& tensors, int axis);

}  // namespace lamina::ops
