#include "lamina/ops/norm/layer_norm.h"

#include "lamina/autograd/tape.h"
#include "lamina/ops/launch.h"
#include "lamina/ops/norm/layer_norm_kernel.h"
#include "lamina/ops/norm/norm_scale.h"

namespace lamina::ops {
namespace {

void check_vector(const char* op, const char* name, const Tensor& vector, const Tensor& x) {
  if (!vector.defined()) return;
  check_floating(op, name, vector);
  LAMINA_CHECK(vector.shape() == Shape{x.dim(-1)}, op, ": ", name, " ", vector.shape(), " has ", vector.numel(),
               " elements, the last dimension of x ", x.shape(), " is ", x.dim(-1), "; load the norm's ", name,
               " of the same model or fix d_model");
}

void run_layer_norm_backward(Backward& b, bool has_bias) {
  const Tensor& x = b.saved(0);
  LayerNormBackward back;
  back.x = x;
  back.scale = b.saved(1);
  back.mean = b.saved(2);
  back.r = b.saved(3);
  back.dy = b.grad(0);
  if (b.has_grad(1)) back.dh = b.grad(1);
  back.dx = Tensor::empty(x.shape(), x.dtype(), x.device());
  const Shape width{x.dim(-1)};
  if (b.needs(2)) back.dweight = Tensor::empty(width, accumulation_type(x.dtype()), x.device());
  if (has_bias && b.needs(3)) back.dbias = Tensor::empty(width, accumulation_type(x.dtype()), x.device());
  const int64_t passes = back.dh.defined() ? 4 : 3;
  LAMINA_LAUNCH(x.device(), (Work{12 * x.numel(), passes * x.nbytes()}), layer_norm_backward, back);
  if (b.needs(1)) b.add(1, back.dx);
  if (b.needs(2)) b.add(2, std::move(back.dweight));
  if (back.dbias.defined()) b.add(3, std::move(back.dbias));
  b.add(0, std::move(back.dx));
}

ResidualNorm run(const char* op, const Tensor& x_in, const Tensor& residual_in, const Tensor& weight,
                 const Tensor& bias, double eps) {
  check_floating(op, "x", x_in);
  check_rank_at_least(op, "x", x_in, 1);
  check_vector(op, "weight", weight, x_in);
  check_vector(op, "bias", bias, x_in);
  if (residual_in.defined()) {
    check_shape(op, "residual", residual_in, x_in.shape());
    check_dtype(op, "residual", residual_in, x_in.dtype());
  }
  check_same_device(op, {x_in, residual_in, weight, bias});
  check_finite(op, "eps", eps);
  LAMINA_CHECK(eps >= 0, op, ": eps is ", eps, "; expected a number >= 0");

  const bool fused = residual_in.defined();
  const Device& device = x_in.device();
  LayerNormForward args;
  args.x = x_in.contiguous();
  args.residual = fused ? residual_in.contiguous() : Tensor();
  args.scale = norm_scale(weight, 0.0, x_in.dtype());
  args.bias = norm_scale(bias, 0.0, x_in.dtype());
  args.eps = eps;
  const int64_t rows = x_in.dim(-1) == 0 ? 0 : x_in.shape().rows();
  args.y = Tensor::empty(x_in.shape(), x_in.dtype(), device);
  args.mean = Tensor::empty({rows}, accumulation_type(x_in.dtype()), device);
  args.r = Tensor::empty({rows}, accumulation_type(x_in.dtype()), device);
  if (fused) args.h = Tensor::empty(x_in.shape(), x_in.dtype(), device);
  LAMINA_LAUNCH(device, (Work{8 * x_in.numel(), (fused ? 4 : 2) * x_in.nbytes()}), layer_norm_forward, args);

  const Tensor normed = fused ? args.h : args.x;
  record(op, {x_in, residual_in, weight, bias}, {args.y, args.h}, {normed, args.scale, args.mean, args.r},
         [has_bias = bias.defined()](Backward& b) { run_layer_norm_backward(b, has_bias); });
  return {args.h, args.y};
}

}  // namespace

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  return run("layer_norm", x, Tensor(), weight, bias, eps).y;
}

ResidualNorm add_layer_norm(const Tensor& x, const Tensor& residual, const Tensor& weight, const Tensor& bias,
                            double eps) {
  LAMINA_CHECK(residual.defined(), "add_layer_norm: residual is undefined; use layer_norm if there is no residual");
  return run("add_layer_norm", x, residual, weight, bias, eps);
}

}  // namespace lamina::ops
