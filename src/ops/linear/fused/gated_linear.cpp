#include "lamina/ops/linear/gated_linear_kernel.h"

#include "lamina/autograd/tape.h"
#include "lamina/ops/kernel_dispatch.h"
#include "lamina/ops/launch.h"
#include "lamina/ops/linear/fused/few_rows_cuda.h"

namespace lamina::ops {
namespace {

Tensor few_rows(const Tensor& x, const Tensor& weight, const Tensor& bias, Gate gate, const GateOptions& options,
                bool settled) {
  const int64_t rows = x.shape().rows();
  GatedLinearForward args{x.detach().contiguous().reshape({rows, x.dim(-1)}),
                          weight.detach(),
                          bias.defined() ? as_accumulation(bias, x.dtype()) : Tensor(),
                          gate,
                          options,
                          Tensor::empty({rows, weight.dim(0) / 2}, x.dtype(), x.device()),
                          settled};
  const Work work{2 * rows * weight.numel(), args.x.nbytes() + weight.nbytes() + args.y.nbytes()};
  x.device().add_work(work);
  LAMINA_LAUNCH_CUDA(gated_linear_forward, args);
  Shape shape = x.shape();
  shape[-1] = weight.dim(0) / 2;
  return args.y.reshape(shape);
}

}  // namespace

Tensor gated_linear(const Tensor& x, const Tensor& weight, const Tensor& bias, Gate gate, const GateOptions& options) {
  const char* op = "gated_linear";
  check_linear(op, x, weight, bias);
  LAMINA_CHECK(weight.dim(0) % 2 == 0, op, ": weight is ", weight.shape(),
               "; expected an even number of rows: gate and up stacked");
  check_gate(op, options);
  return run_gated_linear(x, weight, bias, gate, options, false);
}

Tensor run_gated_linear(const Tensor& x, const Tensor& weight, const Tensor& bias, Gate gate,
                        const GateOptions& options, bool settled) {
  const bool one_launch = x.device().kind() == DeviceKind::cuda && x.shape().rows() <= kFewRows &&
                          weight.strides()[1] == 1 && !is_tracked({x, weight, bias});
  if (!one_launch) {
    require_kernel(x.device(), "gated_linear", "composed");
    return gated_activation(linear(x, weight, bias), gate, options);
  }
  return few_rows(x, weight, bias, gate, options, settled);
}

}  // namespace lamina::ops
