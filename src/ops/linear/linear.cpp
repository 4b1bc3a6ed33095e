#include "lamina/ops/linear/linear.h"

#include "lamina/autograd/tape.h"
#include "lamina/ops/launch.h"

namespace lamina::ops {
namespace {

Shape with_last(Shape shape, int64_t extent) {
  shape[-1] = extent;
  return shape;
}

/// Rows or columns lie one behind the other: products read both without a copy.
bool is_dense_matrix(const Tensor& weight) { return weight.strides()[1] == 1 || weight.strides()[0] == 1; }

Work product_work(const Tensor& a, const Tensor& b, const Tensor& c, int64_t m, int64_t n, int64_t k) {
  return {2 * m * n * k, a.nbytes() + b.nbytes() + c.nbytes()};
}

void add_weight_gradient(Backward& b, LinearBackward& back) {
  const DType type = accumulation_type(back.x.dtype());
  const Tensor held = b.accumulator(1);
  back.accumulate = held.defined() && held.dtype() == type && held.is_contiguous();
  back.dweight = back.accumulate ? held : Tensor::empty(back.weight.shape(), type, back.weight.device());
}

void play_backward(Backward& b, const Shape& x_shape, Activation activation) {
  const Tensor& x = b.saved(0);
  const Tensor& weight = b.saved(1);
  const int64_t rows = x.dim(0);
  const int64_t in = x.dim(1);
  const int64_t out = weight.dim(0);
  const DType type = accumulation_type(x.dtype());

  LinearActivationBackward outer;
  outer.dy = b.grad(0).reshape({rows, out});
  outer.activation = activation;
  if (activation != Activation::none) {
    outer.z = b.saved(2);
    const bool narrow = x.device().kind() == DeviceKind::cuda;
    outer.dz = Tensor::empty({rows, out}, narrow ? outer.dy.dtype() : type, x.device());
  }
  // A GPU's product for dweight adds up the columns of what it reads.
  const bool with_product = activation == Activation::none && b.needs(1) && x.device().kind() == DeviceKind::cuda;
  Tensor dbias;
  if (b.needs(2)) dbias = Tensor::empty({out}, type, x.device());
  if (!with_product) outer.dbias = dbias;
  if (outer.dz.defined() || outer.dbias.defined()) {
    LAMINA_LAUNCH(x.device(), (Work{4 * rows * out, 2 * outer.dy.nbytes()}), linear_activation_backward, outer);
  }

  LinearBackward back;
  back.x = x;
  back.weight = weight;
  back.dz = outer.dz.defined() ? outer.dz : outer.dy;
  back.accumulate = false;
  Work work;
  if (b.needs(0)) {
    back.dx = Tensor::empty({rows, in}, x.dtype(), x.device());
    work = product_work(back.dz, weight, back.dx, rows, in, out);
  }
  if (b.needs(1)) {
    add_weight_gradient(b, back);
    if (with_product) back.dbias = dbias;
    const Work more = product_work(back.dz, x, back.dweight, out, in, rows);
    work.flops += more.flops;
    work.bytes += more.bytes;
  }
  LAMINA_LAUNCH(x.device(), work, linear_backward, back);
  if (b.needs(2)) b.add(2, std::move(dbias));
  if (b.needs(1) && !back.accumulate) b.add(1, std::move(back.dweight));
  if (b.needs(0)) b.add(0, back.dx.reshape(x_shape));
}

}  // namespace

void check_linear(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  check_floating(op, "x", x);
  check_floating(op, "weight", weight);
  check_rank_at_least(op, "x", x, 1);
  LAMINA_CHECK(weight.rank() == 2 && weight.dim(1) == x.dim(-1), op, ": weight is ", weight.shape(),
               "; expected [out, ", x.dim(-1), "] for x ", x.shape(),
               "; store the weight as [out, in] of the same model or fix d_model");
  LAMINA_CHECK((x.dtype() == DType::f64) == (weight.dtype() == DType::f64), op, ": x is ", x.dtype(), " and weight is ",
               weight.dtype(), "; f64 goes with f64 only; convert one with to(dtype)");
  if (bias.defined()) {
    check_floating(op, "bias", bias);
    check_shape(op, "bias", bias, {weight.dim(0)});
  }
  check_same_device(op, {x, weight, bias});
}

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, Activation activation) {
  check_linear("linear", x, weight, bias);
  const int64_t in = x.dim(-1);
  const int64_t out = weight.dim(0);
  const int64_t rows = x.shape().rows();
  LinearForward args;
  args.x = x.detach().contiguous().reshape({rows, in});
  args.weight = is_dense_matrix(weight) ? weight.detach() : weight.detach().contiguous();
  if (bias.defined()) args.bias = as_accumulation(bias, x.dtype());
  args.activation = activation;
  args.y = Tensor::empty({rows, out}, x.dtype(), x.device());
  if (activation != Activation::none && is_tracked({x, weight, bias})) {
    args.z = Tensor::empty({rows, out}, x.dtype(), x.device());
  }
  LAMINA_LAUNCH(x.device(), product_work(args.x, args.weight, args.y, rows, out, in), linear_forward, args);

  Tensor y = args.y.reshape(with_last(x.shape(), out));
  record("linear", {x, weight, bias}, {y}, {args.x, args.weight, args.z},
         [shape = x.shape(), activation](Backward& b) { play_backward(b, shape, activation); });
  return y;
}

}  // namespace lamina::ops
