#include "lamina/ops/linear/linear_kernel.h"

#include <utility>

#include "lamina/ops/launch.h"
#include "lamina/ops/linear/fused/few_rows_cuda.h"
#include "lamina/ops/linear/gemm.h"
#include "lamina/ops/linear/linear_layer.h"

namespace lamina::ops {
namespace {

/// True if rows or columns are contiguous. Products read both kinds without a copy.
bool is_dense_matrix(const Tensor& weight) { return weight.strides()[1] == 1 || weight.strides()[0] == 1; }

Work product_work(const Tensor& a, const Tensor& b, const Tensor& c, int64_t m, int64_t n, int64_t k) {
  return {2 * m * n * k, a.nbytes() + b.nbytes() + c.nbytes()};
}

/// The bias in the dtype that the kernel expects. The CPU and the GPU kernels for few rows take the accumulation type;
/// cuBLASLt adds it in the dtype of x.
Tensor bias_for(const Tensor& x, const Tensor& bias) {
  const bool by_product = x.device().like() == DeviceKind::cuda && x.shape().rows() > kFewRows;
  const bool aligned = reinterpret_cast<uintptr_t>(bias.raw()) % 16 == 0;
  if (by_product && aligned && bias.dtype() == x.dtype()) return bias.detach().contiguous();
  return as_accumulation(bias, x.dtype());
}

void run_linear_backward(Backward& b, const Shape& x_shape, Activation activation) {
  LinearBackward back;
  back.x = b.saved(0);
  back.weight = b.saved(1);
  const Device& device = back.x.device();
  back.dz = b.grad(0).reshape({back.x.dim(0), back.weight.dim(0)});
  Tensor dbias;
  if (activation != Activation::none) {
    if (b.needs(2)) dbias = Tensor::empty({back.weight.dim(0)}, accumulation_type(back.x.dtype()), device);
    back.dz = gradient_of_activation(b.saved(2), back.dz, activation, dbias);
  }
  if (b.needs(0)) back.dx = Tensor::empty(back.x.shape(), back.x.dtype(), device);
  add_layer_gradients(b, 1, back, std::move(dbias));
  if (!b.needs(0)) return;
  Tensor dx = std::exchange(back.dx, Tensor()).reshape(x_shape);  // sole owner, so add() does not copy
  b.add(0, std::move(dx));
}

}  // namespace

Shape linear_shape(const Tensor& x, const Tensor& weight) {
  Shape shape = x.shape();
  shape[-1] = weight.dim(0);
  return shape;
}

LinearForward run_linear(const Tensor& x, const Tensor& weight, const Tensor& bias, Activation activation, bool keeps_z,
                         bool settled) {
  const int64_t in = x.dim(-1);
  const int64_t out = weight.dim(0);
  const int64_t rows = x.shape().rows();
  LinearForward args;
  args.x = x.detach().contiguous().reshape({rows, in});
  args.weight = is_dense_matrix(weight) ? weight.detach() : weight.detach().contiguous();
  if (bias.defined()) args.bias = bias_for(x, bias);
  args.activation = activation;
  args.settled = settled && is_dense_matrix(weight);
  args.y = Tensor::empty({rows, out}, x.dtype(), x.device());
  if (activation != Activation::none && keeps_z) args.z = Tensor::empty({rows, out}, x.dtype(), x.device());
  LAMINA_LAUNCH(x.device(), product_work(args.x, args.weight, args.y, rows, out, in), linear_forward, args);
  return args;
}

Tensor gradient_of_activation(const Tensor& z, const Tensor& dy, Activation activation, const Tensor& dbias) {
  LinearActivationBackward args;
  args.z = z;
  args.dy = dy;
  args.activation = activation;
  // dz has the dtype in which the products of the backward pass read it.
  const bool narrow = dy.device().like() == DeviceKind::cuda || rounds_to_bf16(dy.device(), dy.dtype());
  args.dz = Tensor::empty(dy.shape(), narrow ? dy.dtype() : accumulation_type(z.dtype()), dy.device());
  args.dbias = dbias;
  LAMINA_LAUNCH(dy.device(), (Work{4 * dy.numel(), 2 * dy.nbytes()}), linear_activation_backward, args);
  return args.dz;
}

void add_layer_gradients(Backward& b, int weight, LinearBackward& back, Tensor dbias) {
  const Device& device = back.x.device();
  const int64_t rows = back.x.dim(0);
  const int64_t in = back.x.dim(1);
  const int64_t out = back.weight.dim(0);
  const DType type = accumulation_type(back.x.dtype());
  if (b.needs(weight + 1) && !dbias.defined()) {
    dbias = Tensor::empty({out}, type, device);
    LinearActivationBackward sums;
    sums.dy = back.dz;
    sums.activation = Activation::none;
    sums.dbias = dbias;
    LAMINA_LAUNCH(device, (Work{back.dz.numel(), back.dz.nbytes()}), linear_activation_backward, sums);
  }
  Work work;
  if (back.dx.defined()) work = product_work(back.dz, back.weight, back.dx, rows, in, out);
  back.accumulate = false;
  if (b.needs(weight)) {
    const Tensor held = b.accumulator(weight);
    back.accumulate = held.defined() && held.dtype() == type && held.is_contiguous();
    back.dweight = back.accumulate ? held : Tensor::empty(back.weight.shape(), type, device);
    const Work more = product_work(back.dz, back.x, back.dweight, out, in, rows);
    work.flops += more.flops;
    work.bytes += more.bytes;
  }
  LAMINA_LAUNCH(device, work, linear_backward, back);
  if (b.needs(weight + 1)) b.add(weight + 1, std::move(dbias));
  if (b.needs(weight) && !back.accumulate) b.add(weight, std::move(back.dweight));
}

void check_linear(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  check_floating(op, "x", x);
  check_floating(op, "weight", weight);
  check_rank_at_least(op, "x", x, 1);
  LAMINA_CHECK(weight.rank() == 2 && weight.dim(1) == x.dim(-1), op, ": weight is ", weight.shape(),
               "; expected [out, ", x.dim(-1), "] for x ", x.shape(),
               "; store the weight as [out, in] of the same model or fix d_model");
  LAMINA_CHECK((x.dtype() == DType::f64) == (weight.dtype() == DType::f64), op, ": x is ", x.dtype(), " and weight is ",
               weight.dtype(), "; expected both f64 or neither; convert one with to(dtype)");
  if (bias.defined()) {
    check_floating(op, "bias", bias);
    check_shape(op, "bias", bias, {weight.dim(0)});
  }
  check_same_device(op, {x, weight, bias});
}

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, Activation activation) {
  check_linear("linear", x, weight, bias);
  const LinearForward args = run_linear(x, weight, bias, activation, is_tracked({x, weight, bias}));
  Tensor y = args.y.reshape(linear_shape(x, weight));
  record("linear", {x, weight, bias}, {y}, {args.x, args.weight, args.z},
         [shape = x.shape(), activation](Backward& b) { run_linear_backward(b, shape, activation); });
  return y;
}

}  // namespace lamina::ops
