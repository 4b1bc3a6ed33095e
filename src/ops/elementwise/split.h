#pragma once

#include <vector>

#include "lamina/tensor/tensor.h"

namespace lamina::ops {

/// Splits x along `axis` (negative counts from the end) into views of the given extents, which must add up to x's: the
/// inverse of concat. Backward concatenates the gradients (zeros for unused pieces) in one pass; separate slices would
/// each fill and add a whole tensor.
std::vector<Tensor> split(const Tensor& x, const std::vector<int64_t>& extents, int axis);

}  // namespace lamina::ops
