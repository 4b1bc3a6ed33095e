#pragma once

#include <vector>

#include "lamina/tensor/tensor.h"

namespace lamina::ops {

/// The tensors one behind the other along `axis` (negative counts from the end). One type and device; the other extents
/// must agree. Backward: each receives its slice of the gradient.
Tensor concat(const std::vector<Tensor>& tensors, int axis);

}  // namespace lamina::ops
