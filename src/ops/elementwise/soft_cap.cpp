#include "lamina/ops/elementwise/soft_cap.h"

#include "lamina/autograd/tape.h"
#include "lamina/ops/elementwise/soft_cap_kernel.h"
#include "lamina/ops/launch.h"

namespace lamina::ops {

Tensor soft_cap(const Tensor& x_in, double cap) {
  const char* op = "soft_cap";
  check_floating(op, "x", x_in);
  check_finite(op, "cap", cap);
  LAMINA_CHECK(cap > 0, op, ": cap is ", cap, "; expected a number > 0");
  const Tensor x = x_in.contiguous();
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  LAMINA_LAUNCH(x.device(), (Work{20 * x.numel(), 2 * x.nbytes()}), soft_cap_forward, x, cap, y);
  record(op, {x_in}, {y}, {x}, [cap](Backward& b) {
    const Tensor& saved = b.saved(0);
    Tensor dx = Tensor::empty(saved.shape(), saved.dtype(), saved.device());
    LAMINA_LAUNCH(saved.device(), (Work{20 * saved.numel(), 3 * saved.nbytes()}), soft_cap_backward, saved, b.grad(0),
                  cap, dx);
    b.add(0, std::move(dx));
  });
  return y;
}

}  // namespace lamina::ops
