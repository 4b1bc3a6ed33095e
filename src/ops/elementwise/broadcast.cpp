#include "lamina/ops/elementwise/broadcast.h"

#include "lamina/ops/elementwise/reduce.h"

namespace lamina::ops {

Shape pad_rank(const Shape& shape, int rank) {
  Shape padded;
  for (int i = shape.rank(); i < rank; ++i) padded.push_back(1);
  for (const int64_t extent : shape) padded.push_back(extent);
  return padded;
}

Shape broadcast_shape(const char* op, const Shape& a, const Shape& b) {
  const int rank = std::max(a.rank(), b.rank());
  const Shape left = pad_rank(a, rank);
  const Shape right = pad_rank(b, rank);
  Shape shape = left;
  for (int axis = 0; axis < rank; ++axis) {
    LAMINA_CHECK(left[axis] == right[axis] || left[axis] == 1 || right[axis] == 1, op, ": a ", a, " and b ", b,
                 " do not broadcast: extents ", left[axis], " and ", right[axis],
                 " must be equal or one of them 1, aligned at the last dimension");
    if (left[axis] == 1) shape[axis] = right[axis];
  }
  return shape;
}

Shape broadcast_strides(const Tensor& operand, const Shape& shape) {
  Shape strides = contiguous_strides(operand.shape());
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (operand.dim(axis) == 1) strides[axis] = 0;
  }
  return strides;
}

Tensor sum_to(const Tensor& grad, const Shape& shape) {
  if (grad.shape() == shape) return grad;
  const Shape wanted = pad_rank(shape, grad.rank());
  Tensor sum = grad;
  int axis = grad.rank() - 1;
  while (axis >= 0) {
    // Sums each run of neighbouring broadcast dimensions with one reduction.
    int first = axis;
    while (first >= 0 && wanted[first] == 1 && sum.dim(first) != 1) --first;
    if (first < axis) sum = reduce(sum, first + 1, axis, 1.0);
    axis = std::min(first, axis) - 1;
  }
  return sum.reshape(shape);
}

}  // namespace lamina::ops
