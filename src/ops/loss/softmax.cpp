#include "lamina/ops/loss/softmax.h"

#include "lamina/autograd/tape.h"
#include "lamina/ops/launch.h"
#include "lamina/ops/loss/softmax_kernel.h"

namespace lamina::ops {
namespace {

Tensor run(const char* op, const Tensor& x, bool log) {
  check_floating(op, "x", x);
  check_rank_at_least(op, "x", x, 1);
  SoftmaxForward args{x.detach().contiguous(), Tensor::empty(x.shape(), x.dtype(), x.device()), log};
  LAMINA_LAUNCH(x.device(), (Work{8 * x.numel(), 2 * x.nbytes()}), softmax_forward, args);
  record(op, {x}, {args.y}, {args.y.detach()}, [log](Backward& b) {
    const Tensor& y = b.saved(0);
    SoftmaxBackward back{y, b.grad(0), Tensor::empty(y.shape(), y.dtype(), y.device()), log};
    LAMINA_LAUNCH(y.device(), (Work{4 * y.numel(), 3 * y.nbytes()}), softmax_backward, back);
    b.add(0, std::move(back.dx));
  });
  return args.y;
}

}  // namespace

Tensor softmax(const Tensor& x) { return run("softmax", x, false); }
Tensor log_softmax(const Tensor& x) { return run("log_softmax", x, true); }

}  // namespace lamina::ops
