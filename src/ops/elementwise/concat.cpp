#include "lamina/ops/elementwise/concat.h"

#include "lamina/autograd/tape.h"
#include "lamina/ops/launch.h"

namespace lamina::ops {
namespace {

/// The result's shape; throws if the tensors do not fit together.
Shape joined_shape(const std::vector<Tensor>& tensors, int axis) {
  Shape shape = tensors[0].shape();
  int64_t total = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& tensor = tensors[i];
    LAMINA_CHECK(tensor.defined(), "concat: tensor ", i, " is undefined; pass a tensor");
    LAMINA_CHECK(tensor.dtype() == tensors[0].dtype(), "concat: tensor ", i, " is ", tensor.dtype(), ", tensor 0 is ",
                 tensors[0].dtype(), "; convert with to(dtype)");
    check_same_device("concat", {tensors[0], tensor});
    Shape expected = tensors[0].shape();
    if (tensor.rank() == expected.rank()) expected[axis] = tensor.dim(axis);
    LAMINA_CHECK(tensor.shape() == expected, "concat: tensor ", i, " is ", tensor.shape(), ", tensor 0 is ",
                 tensors[0].shape(), "; along all axes except ", axis, " they must agree");
    LAMINA_CHECK(!__builtin_add_overflow(total, tensor.dim(axis), &total), "concat: the extents along axis ", axis,
                 " add up to more than 2^63");
  }
  shape[axis] = total;
  return shape;
}

}  // namespace

Tensor concat(const std::vector<Tensor>& tensors, int axis_in) {
  LAMINA_CHECK(!tensors.empty(), "concat: no tensors were given; expected at least one");
  check_rank_at_least("concat", "tensor 0", tensors[0], 1);
  const int axis = tensors[0].shape().normalize(axis_in);
  Tensor out = Tensor::empty(joined_shape(tensors, axis), tensors[0].dtype(), tensors[0].device());
  out.device().add_work({0, 2 * out.nbytes()});
  std::vector<int64_t> extents;
  int64_t begin = 0;
  for (const Tensor& tensor : tensors) {
    out.slice(axis, begin, tensor.dim(axis)).copy_(tensor);
    begin += tensor.dim(axis);
    extents.push_back(tensor.dim(axis));
  }
  record("concat", tensors, {out}, {}, [extents, axis](Backward& b) {
    const Tensor grad = b.grad(0);
    int64_t first = 0;
    for (size_t i = 0; i < extents.size(); ++i) {
      const int input = static_cast<int>(i);
      if (b.needs(input)) b.add(input, grad.slice(axis, first, extents[i]).clone());
      first += extents[i];
    }
  });
  return out;
}

}  // namespace lamina::ops
