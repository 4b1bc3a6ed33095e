#include "lamina/ops/elementwise/scaled_exp.h"

#include "lamina/autograd/tape.h"
#include "lamina/ops/elementwise/scaled_exp_kernel.h"
#include "lamina/ops/launch.h"

namespace lamina::ops {

Tensor scaled_exp(const Tensor& x_in, double factor) {
  const char* op = "scaled_exp";
  check_floating(op, "x", x_in);
  check_finite(op, "factor", factor);
  const Tensor x = x_in.contiguous();
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  LAMINA_LAUNCH(x.device(), (Work{8 * x.numel(), 2 * x.nbytes()}), scaled_exp_forward, x, factor, y);
  record(op, {x_in}, {y}, {x}, [factor](Backward& b) {
    const Tensor& saved = b.saved(0);
    Tensor dx = Tensor::empty(saved.shape(), saved.dtype(), saved.device());
    LAMINA_LAUNCH(saved.device(), (Work{9 * saved.numel(), 3 * saved.nbytes()}), scaled_exp_backward, saved, b.grad(0),
                  factor, dx);
    b.add(0, std::move(dx));
  });
  return y;
}

}  // namespace lamina::ops
