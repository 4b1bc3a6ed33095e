#include "lamina/ops/activation/gated_activation.h"

#include "lamina/autograd/tape.h"
#include "lamina/ops/activation/gated_activation_kernel.h"
#include "lamina/ops/launch.h"

namespace lamina::ops {
namespace {

/// Approximate FLOPs per output, forward and backward.
constexpr int64_t kFlops = 20;

}  // namespace

void check_gate(const char* op, const GateOptions& options) {
  check_finite(op, "alpha", options.alpha);
  check_finite(op, "up_offset", options.up_offset);
  LAMINA_CHECK(options.alpha > 0, op, ": alpha is ", options.alpha, "; expected a number > 0, 1 for the plain gate");
  LAMINA_CHECK(options.limit > 0, op, ": limit is ", options.limit, "; expected a number > 0, infinity for no limit");
}

Tensor gated_activation(const Tensor& x_in, Gate gate, const GateOptions& options) {
  const char* op = "gated_activation";
  check_floating(op, "x", x_in);
  check_rank_at_least(op, "x", x_in, 1);
  LAMINA_CHECK(x_in.dim(-1) % 2 == 0, op, ": the last dimension of x ", x_in.shape(), " is ", x_in.dim(-1),
               "; expected an even number, the gate and up halves");
  check_gate(op, options);
  const Tensor x = x_in.contiguous();
  Shape shape = x.shape();
  shape[-1] /= 2;
  Tensor out = Tensor::empty(shape, x.dtype(), x.device());
  LAMINA_LAUNCH(x.device(), (Work{kFlops * out.numel(), x.nbytes() + out.nbytes()}), gated_activation_forward, x, gate,
                options, out);
  record(op, {x_in}, {out}, {x}, [gate, options](Backward& b) {
    const Tensor& saved = b.saved(0);
    const Tensor dout = b.grad(0);
    Tensor dx = Tensor::empty(saved.shape(), saved.dtype(), saved.device());
    LAMINA_LAUNCH(saved.device(), (Work{2 * kFlops * dout.numel(), 2 * saved.nbytes() + dout.nbytes()}),
                  gated_activation_backward, saved, dout, gate, options, dx);
    b.add(0, std::move(dx));
  });
  return out;
}

}  // namespace lamina::ops
