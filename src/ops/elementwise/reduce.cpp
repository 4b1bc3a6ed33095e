#include "lamina/ops/elementwise/reduce.h"

#include "lamina/autograd/tape.h"
#include "lamina/ops/elementwise/broadcast.h"
#include "lamina/ops/elementwise/reduce_kernel.h"
#include "lamina/ops/launch.h"

namespace lamina::ops {
namespace {

/// Sums the axes first … last, times `factor`, and records the backward function; `shape` is the shape of the result.
Tensor run(const char* op, const Tensor& x, int first, int last, const Shape& shape, double factor) {
  const Tensor reduced = reduce(x.detach(), first, last, factor);
  const Shape kept = reduced.shape();
  Tensor out = reduced.to(x.dtype()).reshape(shape);
  record(op, {x}, {out}, {}, [from = x.shape(), kept, factor](Backward& back) {
    back.add(0, expand(back.grad(0).reshape(kept), from, factor));
  });
  return out;
}

Tensor over_all(const char* op, const Tensor& x, bool average) {
  check_floating(op, "x", x);
  LAMINA_CHECK(!average || x.numel() > 0, op, ": x ", x.shape(), " has no elements to average; expected at least one");
  const double factor = average ? 1.0 / static_cast<double>(x.numel()) : 1.0;
  if (x.rank() == 0) return run(op, x.reshape({1}), 0, 0, {}, factor);
  return run(op, x, 0, x.rank() - 1, {}, factor);
}

Tensor over_axis(const char* op, const Tensor& x, int axis_in, bool average) {
  check_floating(op, "x", x);
  check_rank_at_least(op, "x", x, 1);
  const int axis = x.shape().normalize(axis_in);
  LAMINA_CHECK(!average || x.dim(axis) > 0, op, ": axis ", axis_in, " of x ", x.shape(),
               " has no elements to average; expected at least one");
  Shape shape;
  for (int i = 0; i < x.rank(); ++i) {
    if (i != axis) shape.push_back(x.dim(i));
  }
  return run(op, x, axis, axis, shape, average ? 1.0 / static_cast<double>(x.dim(axis)) : 1.0);
}

}  // namespace

Tensor sum(const Tensor& x) { return over_all("sum", x, false); }
Tensor sum(const Tensor& x, int axis) { return over_axis("sum", x, axis, false); }
Tensor mean(const Tensor& x) { return over_all("mean", x, true); }
Tensor mean(const Tensor& x, int axis) { return over_axis("mean", x, axis, true); }

Tensor reduce(const Tensor& x, int first, int last, double factor) {
  ReduceMiddle args{x.contiguous(), 1, 1, 1, factor, {}};
  Shape kept = x.shape();
  for (int axis = 0; axis < x.rank(); ++axis) {
    (axis < first ? args.outer : axis > last ? args.inner : args.count) *= x.dim(axis);
    if (axis >= first && axis <= last) kept[axis] = 1;
  }
  args.out = Tensor::empty(kept, accumulation_type(x.dtype()), x.device());
  LAMINA_LAUNCH(x.device(), (Work{x.numel(), x.nbytes() + args.out.nbytes()}), reduce_middle, args);
  return args.out;
}

}  // namespace lamina::ops
