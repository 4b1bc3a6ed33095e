#pragma once

#include <vector>

#include "lamina/tensor/tensor.h"

namespace lamina::ops {

/// The consecutive pieces of x along `axis` (negative counts from the end), of the extents given, which add up to x's:
/// the inverse of concat. The pieces are views. Backward: the gradients one behind the other, written once, where as
/// many slices would each fill and add a whole one; zeros for a piece that nothing used.
std::vector<Tensor> split(const Tensor& x, const std::vector<int64_t>& extents, int axis);

}  // namespace lamina::ops
