#include "lamina/ops/activation/xielu.h"

#include "lamina/autograd/tape.h"
#include "lamina/ops/activation/activation.h"
#include "lamina/ops/activation/xielu_kernel.h"
#include "lamina/ops/elementwise/elementwise.h"
#include "lamina/ops/elementwise/reduce.h"
#include "lamina/ops/launch.h"

namespace lamina::ops {
namespace {

constexpr const char* kOp = "xielu";
constexpr int64_t kFlops = 20;  // FLOPs per element; the exponential counts as its polynomial

/// dalpha = σ(alpha) · Σ column, in alpha's type.
Tensor alpha_gradient(const Tensor& partial, int64_t column, const Tensor& alpha, DType dtype) {
  const Tensor total = reduce(partial.slice(1, column, 1).contiguous(), 0, 1, 1.0).reshape({1});
  return mul(total, activation(alpha, Activation::sigmoid)).to(dtype);
}

}  // namespace

Tensor xielu(const Tensor& x, const Tensor& alpha_p, const Tensor& alpha_n, const XieluOptions& options) {
  check_floating(kOp, "x", x);
  check_floating(kOp, "alpha_p", alpha_p);
  check_floating(kOp, "alpha_n", alpha_n);
  check_shape(kOp, "alpha_p", alpha_p, {1});
  check_shape(kOp, "alpha_n", alpha_n, {1});
  check_same_device(kOp, {x, alpha_p, alpha_n});
  check_finite(kOp, "beta", options.beta);
  LAMINA_CHECK(options.eps <= 0, kOp, ": eps is ", options.eps, "; expected at most 0");
  XieluForward args;
  args.x = x.contiguous();
  args.alpha_p = as_accumulation(alpha_p, x.dtype());
  args.alpha_n = as_accumulation(alpha_n, x.dtype());
  args.options = options;
  args.y = Tensor::empty(x.shape(), x.dtype(), x.device());
  LAMINA_LAUNCH(x.device(), (Work{kFlops * x.numel(), 2 * x.nbytes()}), xielu_forward, args);
  const DType p_type = alpha_p.dtype();
  const DType n_type = alpha_n.dtype();
  record(
      kOp, {x, alpha_p, alpha_n}, {args.y}, {args.x, args.alpha_p, args.alpha_n},
      [options, p_type, n_type](Backward& b) {
        XieluBackward back;
        back.x = b.saved(0);
        back.alpha_p = b.saved(1);
        back.alpha_n = b.saved(2);
        back.dy = b.grad(0);
        back.options = options;
        back.dx = Tensor::empty(back.x.shape(), back.x.dtype(), back.x.device());
        const int64_t chunks = (back.x.numel() + kXieluChunk - 1) / kXieluChunk;
        back.partial = Tensor::empty({chunks, 2}, back.alpha_p.dtype(), back.x.device());
        LAMINA_LAUNCH(back.x.device(), (Work{2 * kFlops * back.x.numel(), 3 * back.x.nbytes()}), xielu_backward, back);
        b.add(0, back.dx);
        b.add(1, alpha_gradient(back.partial, 0, back.alpha_p, p_type));
        b.add(2, alpha_gradient(back.partial, 1, back.alpha_n, n_type));
      });
  return args.y;
}

}  // namespace lamina::ops
