#pragma once

#include <vector>

#include "lamina/tensor/tensor.h"

namespace lamina::ops {

/// Splits x along `axis` (negative counts from the end) into views with the given extents, which must add up to x's.
/// The inverse of concat(). Backward concatenates the gradients (zeros for unused pieces) in one pass. Separate slices
/// would each fill a whole tensor with zeros and add it.
std::vector<Tensor> split(const Tensor& x, const std::vector<int64_t>& extents, int axis);

}  // namespace lamina::ops
