#include "lamina/ops/activation/activation.h"

#include "lamina/autograd/tape.h"
#include "lamina/ops/activation/activation_kernel.h"
#include "lamina/ops/launch.h"

namespace lamina::ops {
namespace {

/// Approximate FLOPs per element; an exponential or division counts as its polynomial.
constexpr int64_t kFlops = 20;

}  // namespace

Tensor activation(const Tensor& x_in, Activation function) {
  const char* op = "activation";
  check_floating(op, "x", x_in);
  if (function == Activation::none) return x_in;
  const Tensor x = x_in.contiguous();
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  LAMINA_LAUNCH(x.device(), (Work{kFlops * x.numel(), 2 * x.nbytes()}), activation_forward, x, function, y);
  record(op, {x_in}, {y}, {x}, [function](Backward& b) {
    const Tensor& saved = b.saved(0);
    Tensor dx = Tensor::empty(saved.shape(), saved.dtype(), saved.device());
    LAMINA_LAUNCH(saved.device(), (Work{kFlops * saved.numel(), 3 * saved.nbytes()}), activation_backward, saved,
                  b.grad(0), function, dx);
    b.add(0, std::move(dx));
  });
  return y;
}

}  // namespace lamina::ops
