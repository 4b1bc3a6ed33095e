#include "lamina/ops/elementwise/elementwise.h"

#include "lamina/autograd/tape.h"
#include "lamina/ops/elementwise/broadcast.h"
#include "lamina/ops/elementwise/elementwise_kernel.h"
#include "lamina/ops/launch.h"

namespace lamina::ops {
namespace {

/// Runs the kernel on operands that broadcast to `shape`.
Tensor launch(Combine kind, const Tensor& a, const Tensor& b, double alpha, const Shape& shape) {
  Combination args;
  args.a = a.contiguous().reshape(pad_rank(a.shape(), shape.rank()));
  if (b.defined()) args.b = b.contiguous().reshape(pad_rank(b.shape(), shape.rank()));
  args.out = Tensor::empty(shape, a.dtype(), a.device());
  args.kind = kind;
  args.alpha = alpha;
  const int64_t bytes = a.nbytes() + (b.defined() ? b.nbytes() : 0) + args.out.nbytes();
  LAMINA_LAUNCH(a.device(), (Work{2 * args.out.numel(), bytes}), combine, args);
  return args.out;
}

void check_pair(const char* op, const Tensor& a, const Tensor& b) {
  check_floating(op, "a", a);
  check_floating(op, "b", b);
  check_dtype(op, "b", b, a.dtype());
  check_same_device(op, {a, b});
}

Tensor combine_sum(const char* op, const Tensor& a, const Tensor& b, double alpha) {
  check_pair(op, a, b);
  check_finite(op, "alpha", alpha);
  Tensor out = launch(Combine::sum, a.detach(), b.detach(), alpha, broadcast_shape(op, a.shape(), b.shape()));
  record(op, {a, b}, {out}, {}, [sa = a.shape(), sb = b.shape(), alpha](Backward& back) {
    const Tensor grad = back.grad(0);
    if (back.needs(0)) back.add(0, sum_to(grad, sa));
    if (!back.needs(1)) return;
    const Tensor db = sum_to(grad, sb);
    back.add(1, alpha == 1.0 ? db : expand(db, sb, alpha));
  });
  return out;
}

/// sum_to(grad · other, shape). The products are summed in the accumulation type, without rounding them to 16 bits
/// first.
Tensor product_gradient(const Tensor& grad, const Tensor& other, const Shape& shape) {
  if (grad.shape() == shape) return launch(Combine::product, grad, other, 1.0, grad.shape());
  const DType dtype = grad.dtype();
  return sum_to(
      launch(Combine::product, as_accumulation(grad, dtype), as_accumulation(other, dtype), 1.0, grad.shape()), shape);
}

}  // namespace

Tensor add(const Tensor& a, const Tensor& b) { return combine_sum("add", a, b, 1.0); }
Tensor sub(const Tensor& a, const Tensor& b) { return combine_sum("sub", a, b, -1.0); }
Tensor add_scaled(const Tensor& a, const Tensor& b, double alpha) { return combine_sum("add_scaled", a, b, alpha); }

Tensor mul(const Tensor& a, const Tensor& b) {
  check_pair("mul", a, b);
  Tensor out = launch(Combine::product, a.detach(), b.detach(), 1.0, broadcast_shape("mul", a.shape(), b.shape()));
  record("mul", {a, b}, {out}, {a, b}, [](Backward& back) {
    const Tensor grad = back.grad(0);
    if (back.needs(0)) back.add(0, product_gradient(grad, back.saved(1), back.saved(0).shape()));
    if (back.needs(1)) back.add(1, product_gradient(grad, back.saved(0), back.saved(1).shape()));
  });
  return out;
}

Tensor scale(const Tensor& x, double alpha) {
  check_floating("scale", "x", x);
  check_finite("scale", "alpha", alpha);
  Tensor out = expand(x.detach(), x.shape(), alpha);
  record("scale", {x}, {out}, {}, [alpha](Backward& back) {
    const Tensor grad = back.grad(0);
    back.add(0, expand(grad, grad.shape(), alpha));
  });
  return out;
}

Tensor expand(const Tensor& x, const Shape& shape, double alpha) {
  return launch(Combine::first, x, Tensor(), alpha, shape);
}

}  // namespace lamina::ops
