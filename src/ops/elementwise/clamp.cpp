#include "lamina/ops/elementwise/clamp.h"

#include "lamina/autograd/tape.h"
#include "lamina/ops/elementwise/clamp_kernel.h"
#include "lamina/ops/launch.h"

namespace lamina::ops {

Tensor clamp(const Tensor& x_in, double low, double high) {
  const char* op = "clamp";
  check_floating(op, "x", x_in);
  LAMINA_CHECK(low <= high, op, ": the bounds are ", low, " and ", high, "; expected low <= high");
  const Tensor x = x_in.contiguous();
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  LAMINA_LAUNCH(x.device(), (Work{2 * x.numel(), 2 * x.nbytes()}), clamp_forward, x, low, high, y);
  record(op, {x_in}, {y}, {x}, [low, high](Backward& b) {
    const Tensor& saved = b.saved(0);
    Tensor dx = Tensor::empty(saved.shape(), saved.dtype(), saved.device());
    LAMINA_LAUNCH(saved.device(), (Work{2 * saved.numel(), 3 * saved.nbytes()}), clamp_backward, saved, b.grad(0), low,
                  high, dx);
    b.add(0, std::move(dx));
  });
  return y;
}

}  // namespace lamina::ops
