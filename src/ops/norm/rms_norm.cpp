#include "lamina/ops/norm/rms_norm.h"

#include "lamina/autograd/tape.h"
#include "lamina/ops/launch.h"
#include "lamina/ops/norm/norm_scale.h"
#include "lamina/ops/norm/rms_norm_kernel.h"

namespace lamina::ops {
namespace {

int64_t checked_group_size(const char* op, int64_t width, const RmsNormOptions& options) {
  const int64_t size = options.group_size == 0 ? width : options.group_size;
  LAMINA_CHECK(size > 0 ? width % size == 0 : width == 0, op, ": group_size ", options.group_size,
               " does not divide the last dimension ", width, "; choose a divisor, or 0 for the whole dimension");
  return size;
}

ResidualNorm run(const char* op, const Tensor& x_in, const Tensor& residual_in, const Tensor& weight,
                 const RmsNormOptions& options) {
  check_floating(op, "x", x_in);
  check_rank_at_least(op, "x", x_in, 1);
  const int64_t width = x_in.dim(-1);
  if (weight.defined()) {
    check_floating(op, "weight", weight);
    LAMINA_CHECK(weight.shape() == Shape{width}, op, ": weight has ", weight.numel(),
                 " elements, the last dimension of x ", x_in.shape(), " is ", width,
                 "; load the norm weight of the same model or fix d_model");
  }
  if (residual_in.defined()) {
    check_shape(op, "residual", residual_in, x_in.shape());
    check_dtype(op, "residual", residual_in, x_in.dtype());
  }
  check_same_device(op, {x_in, residual_in, weight});
  check_finite(op, "eps", options.eps);
  check_finite(op, "weight_offset", options.weight_offset);
  LAMINA_CHECK(options.eps >= 0, op, ": eps is ", options.eps, "; expected a number >= 0");

  RmsNormForward args;
  args.x = x_in.contiguous();
  args.residual = residual_in.defined() ? residual_in.contiguous() : Tensor();
  args.scale = norm_scale(weight, options.weight_offset, x_in.dtype());
  args.eps = options.eps;
  args.group_size = checked_group_size(op, width, options);
  const int64_t groups = width == 0 ? 0 : x_in.numel() / args.group_size;
  args.y = Tensor::empty(x_in.shape(), x_in.dtype(), x_in.device());
  args.r = Tensor::empty({groups}, accumulation_type(x_in.dtype()), x_in.device());
  if (residual_in.defined()) args.h = Tensor::empty(x_in.shape(), x_in.dtype(), x_in.device());

  const int64_t n = x_in.numel();
  const int64_t passes = residual_in.defined() ? 4 : 2;
  LAMINA_LAUNCH(x_in.device(), (Work{4 * n, passes * x_in.nbytes()}), rms_norm_forward, args);

  const Tensor normed = residual_in.defined() ? args.h : args.x;
  record(op, {x_in, residual_in, weight}, {args.y, args.h}, {normed, args.scale, args.r},
         [group_size = args.group_size, width](Backward& b) {
           const Tensor& x = b.saved(0);
           RmsNormBackward back;
           back.x = x;
           back.scale = b.saved(1);
           back.r = b.saved(2);
           back.dy = b.grad(0);
           if (b.has_grad(1)) back.dh = b.grad(1);
           back.group_size = group_size;
           back.dx = Tensor::empty(x.shape(), x.dtype(), x.device());
           if (b.needs(2)) back.dweight = Tensor::empty({width}, accumulation_type(x.dtype()), x.device());
           LAMINA_LAUNCH(x.device(), (Work{8 * x.numel(), (back.dh.defined() ? 4 : 3) * x.nbytes()}), rms_norm_backward,
                         back);
           if (b.needs(1)) b.add(1, back.dx);
           if (b.needs(2)) b.add(2, std::move(back.dweight));
           b.add(0, std::move(back.dx));
         });
  return {args.h, args.y};
}

}  // namespace

Tensor rms_norm(const Tensor& x, const Tensor& weight, const RmsNormOptions& options) {
  return run("rms_norm", x, Tensor(), weight, options).y;
}

ResidualNorm add_rms_norm(const Tensor& x, const Tensor& residual, const Tensor& weight,
                          const RmsNormOptions& options) {
  LAMINA_CHECK(residual.defined(), "add_rms_norm: residual is undefined; use rms_norm if there is no residual");
  return run("add_rms_norm", x, residual, weight, options);
}

}  // namespace lamina::ops
