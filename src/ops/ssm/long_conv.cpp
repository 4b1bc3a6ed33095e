#include "lamina/ops/ssm/long_conv.h"

#include "lamina/autograd/tape.h"
#include "lamina/ops/launch.h"
#include "lamina/ops/ssm/long_conv_kernel.h"

namespace lamina::ops {
namespace {

/// Number of pairs (t, s) with s <= t < seq and s < taps.
int64_t pairs(int64_t seq, int64_t taps) {
  const int64_t whole = std::min(seq, taps);
  return whole * (whole + 1) / 2 + (seq - whole) * whole;
}

}  // namespace

Tensor long_conv(const Tensor& u, const Tensor& kernel, const Tensor& d) {
  constexpr const char* kOp = "long_conv";
  check_floating(kOp, "u", u);
  check_floating(kOp, "kernel", kernel);
  LAMINA_CHECK(u.rank() == 3 && kernel.rank() == 2 && kernel.dim(0) == u.dim(2), kOp, ": u is ", u.shape(),
               ", kernel is ", kernel.shape(), "; expected [batch, seq, channels] and [channels, taps]");
  if (d.defined()) {
    check_floating(kOp, "d", d);
    check_shape(kOp, "d", d, {u.dim(2)});
  }
  check_same_device(kOp, {u, kernel, d});
  LongConvForward args;
  args.u = u.contiguous();
  args.kernel = as_accumulation(kernel, u.dtype());
  if (d.defined()) args.d = as_accumulation(d, u.dtype());
  args.y = Tensor::empty(u.shape(), u.dtype(), u.device());
  const int64_t flops = 2 * u.dim(0) * u.dim(2) * pairs(u.dim(1), kernel.dim(1));
  LAMINA_LAUNCH(u.device(), (Work{flops, 2 * u.nbytes() + kernel.nbytes()}), long_conv_forward, args);
  record(kOp, {u, kernel, d}, {args.y}, {args.u, args.kernel, args.d}, [flops](Backward& b) {
    LongConvBackward back;
    back.forward = {b.saved(0), b.saved(1), b.saved(2), {}};
    back.dy = b.grad(0);
    const Tensor& x = back.forward.u;
    const Tensor& taps = back.forward.kernel;
    if (b.needs(0)) back.du = Tensor::empty(x.shape(), x.dtype(), x.device());
    if (b.needs(1)) back.dkernel = Tensor::empty(taps.shape(), taps.dtype(), x.device());
    if (b.needs(2)) back.dd = Tensor::empty({x.dim(2)}, taps.dtype(), x.device());
    const int64_t products = (b.needs(0) ? 1 : 0) + (b.needs(1) ? 1 : 0);
    LAMINA_LAUNCH(x.device(), (Work{products * flops, 3 * x.nbytes() + 2 * taps.nbytes()}), long_conv_backward, back);
    if (b.needs(0)) b.add(0, std::move(back.du));
    if (b.needs(1)) b.add(1, std::move(back.dkernel));
    if (b.needs(2)) b.add(2, std::move(back.dd));
  });
  return args.y;
}

}  // namespace lamina::ops
