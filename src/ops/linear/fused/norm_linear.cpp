#include "lamina/ops/linear/norm_linear_kernel.h"

#include "lamina/autograd/tape.h"
#include "lamina/ops/elementwise/reduce.h"
#include "lamina/ops/kernel_dispatch.h"
#include "lamina/ops/launch.h"
#include "lamina/ops/linear/fused/few_rows_cuda.h"
#include "lamina/ops/linear/gated_linear_kernel.h"
#include "lamina/ops/linear/linear_layer.h"
#include "lamina/ops/linear/quantized_linear_kernel.h"
#include "lamina/ops/norm/layer_norm.h"
#include "lamina/ops/norm/norm_scale.h"

namespace lamina::ops {
Tensor sum_of_parts(const Tensor& residual, const Tensor& x) {
  if (!residual.defined() || residual.rank() == x.rank()) return residual;
  return residual.dim(0) == 1 ? residual.reshape(x.shape()) : sum(residual, 0);
}

void check_row_norm(const char* op, const Tensor& x, const Tensor& residual, const RowNorm& norm) {
  for (const auto& [name, vector] : {std::pair{"norm.weight", norm.weight}, {"norm.bias", norm.bias}}) {
    if (!vector.defined()) continue;
    check_floating(op, name, vector);
    check_shape(op, name, vector, {x.dim(-1)});
  }
  const bool layer = norm.kind == RowNorm::Kind::layer;
  LAMINA_CHECK(layer || !norm.bias.defined(), op, ": an RMS norm has no bias; leave it out, or use a layer norm");
  LAMINA_CHECK(!layer || (norm.options.group_size == 0 && norm.options.weight_offset == 0), op, ": a layer norm with ",
               "group_size ", norm.options.group_size, " and weight_offset ", norm.options.weight_offset,
               "; expected 0; add the offset to the weight, or use an RMS norm");
  if (residual.defined()) {
    Shape expected;
    if (residual.rank() == x.rank() + 1 && residual.dim(0) > 0) expected.push_back(residual.dim(0));
    for (const int64_t extent : x.shape()) expected.push_back(extent);
    check_shape(op, "residual", residual, expected);
    check_dtype(op, "residual", residual, x.dtype());
  }
  check_same_device(op, {x, residual, norm.weight, norm.bias});
  check_finite(op, "eps", norm.options.eps);
  check_finite(op, "weight_offset", norm.options.weight_offset);
  LAMINA_CHECK(norm.options.eps >= 0, op, ": eps is ", norm.options.eps, "; expected a number >= 0");
}

ResidualNorm residual_norm(const Tensor& x, const Tensor& parts, const RowNorm& norm) {
  const Tensor residual = sum_of_parts(parts, x);
  if (norm.kind == RowNorm::Kind::rms) {
    if (residual.defined()) return add_rms_norm(x, residual, norm.weight, norm.options);
    return {x, rms_norm(x, norm.weight, norm.options)};
  }
  if (residual.defined()) return add_layer_norm(x, residual, norm.weight, norm.bias, norm.options.eps);
  return {x, layer_norm(x, norm.weight, norm.bias, norm.options.eps)};
}

namespace {

/// True if few rows on a GPU may take one launch: no gradient is tracked and the norm has no groups.
bool is_candidate(const Tensor& x, const Tensor& residual, const RowNorm& norm, const Tensor& weight,
                  const Tensor& bias) {
  const int64_t rows = x.shape().rows();
  const bool whole_rows = norm.options.group_size == 0 || norm.options.group_size == x.dim(-1);
  return x.device().kind() == DeviceKind::cuda && rows > 0 && rows <= kFewRows && whole_rows && weight.numel() > 0 &&
         !is_tracked({x, residual, norm.weight, norm.bias, weight, bias});
}

int64_t work_bytes(const Tensor& x, const Tensor& residual, const Tensor& weight, const Tensor& y) {
  return (residual.defined() ? 2 : 1) * x.nbytes() + (residual.defined() ? residual.nbytes() : 0) + weight.nbytes() +
         y.nbytes();
}

/// The parts of a residual in the form that kernels take: [n, rows, in].
Tensor residual_parts(const Tensor& residual, const Tensor& x) {
  const int64_t parts = residual.rank() == x.rank() ? 1 : residual.dim(0);
  return residual.detach().contiguous().reshape({parts, x.shape().rows(), x.dim(-1)});
}

/// Tries the single parallel region for one row on a CPU. `args` has the gate or the activation. Returns undefined
/// tensors if the kernel does not support the case.
NormLinear quantized_in_one_region(const Tensor& x, const Tensor& residual, const RowNorm& norm,
                                   const QuantizedWeight& weight, const Tensor& bias, QuantizedStream args) {
  const int64_t parts = residual.defined() && residual.rank() > x.rank() ? residual.dim(0) : 1;
  const bool whole_row = norm.options.group_size == 0 || norm.options.group_size == x.dim(-1);
  const bool fits = x.device().kind() == DeviceKind::cpu && x.dtype() == DType::f32 && x.shape().rows() == 1 &&
                    parts == 1 && whole_row && weight.data.numel() > 0 && weight.in > 0 &&
                    allows_kernel(x.device(), "norm_linear", "cpu");
  const bool whole_groups = !args.options.interleaved && weight.out % (2 * QuantizedWeight::kRows) == 0;
  if (!fits || (args.gated && !whole_groups) || is_tracked({x, residual, norm.weight, norm.bias, bias})) return {};
  RowNorm row_norm = norm;
  row_norm.weight = norm_scale(norm.weight, norm.options.weight_offset, x.dtype());
  row_norm.bias = norm_scale(norm.bias, 0.0, x.dtype());
  args.norm = &row_norm;
  args.product.x = x.contiguous();
  args.product.weight = weight;
  if (bias.defined()) args.product.bias = as_accumulation(bias, x.dtype());
  Shape shape = x.shape();
  shape[-1] = args.gated ? weight.out / 2 : weight.out;
  args.product.y = Tensor::empty(shape, x.dtype(), x.device());
  if (residual.defined()) {
    args.residual = residual.contiguous();
    args.h = Tensor::empty(x.shape(), x.dtype(), x.device());
  }
  cpu::quantized_norm_linear(args);
  x.device().add_work(
      {2 * weight.out * weight.in + 4 * x.numel(), work_bytes(args.product.x, residual, weight.data, args.product.y)});
  return {residual.defined() ? args.h : x, args.product.y};
}

/// Tries the single launch for a quantized weight. `args` has the gate or the activation. Returns undefined tensors if
/// the kernel does not support the case.
NormLinear quantized_in_one_launch(const Tensor& x, const Tensor& residual, const RowNorm& norm,
                                   const QuantizedWeight& weight, const Tensor& bias, QuantizedStream args) {
  if (!is_candidate(x, residual, norm, weight.data, bias) || x.dtype() == DType::f64) return {};
  const auto vector = [&](const Tensor& tensor) {
    return tensor.defined() ? as_accumulation(tensor, x.dtype()) : Tensor();
  };
  const int64_t rows = x.shape().rows();
  const int64_t out = args.gated ? weight.out / 2 : weight.out;
  RowNorm row_norm = norm;
  row_norm.weight = vector(norm.weight);
  row_norm.bias = vector(norm.bias);
  args.norm = &row_norm;
  args.product.x = x.detach().contiguous().reshape({rows, weight.in});
  args.product.weight = weight;
  args.product.bias = vector(bias);
  args.product.y = Tensor::empty({rows, out}, x.dtype(), x.device());
  if (residual.defined()) {
    args.residual = residual_parts(residual, x);
    args.h = Tensor::empty({rows, weight.in}, x.dtype(), x.device());
  }
  bool done = false;
  LAMINA_LAUNCH_CUDA(quantized_norm_linear, args, done);
  if (!done) return {};
  x.device().add_work({2 * rows * weight.out * weight.in + 4 * x.numel(),
                       work_bytes(args.product.x, residual, weight.data, args.product.y)});
  Shape shape = x.shape();
  shape[-1] = out;
  return {residual.defined() ? args.h.reshape(x.shape()) : x, args.product.y.reshape(shape)};
}

/// Tries the single launch. `args` has the gate or the activation. Returns undefined tensors if the kernel does not
/// support the case.
NormLinear in_one_launch(const Tensor& x, const Tensor& residual, const RowNorm& norm, const LinearWeight& given,
                         const Tensor& bias, NormLinearForward args) {
  if (given.is_quantized()) {
    QuantizedStream stream{.gated = args.gated, .gate = args.gate, .options = args.options};
    stream.product.activation = args.activation;
    if (x.device().kind() == DeviceKind::cpu) {
      return quantized_in_one_region(x, residual, norm, given.quantized, bias, stream);
    }
    return quantized_in_one_launch(x, residual, norm, given.quantized, bias, stream);
  }
  const Tensor& weight = given.plain;
  const int64_t rows = x.shape().rows();
  const int64_t in = x.dim(-1);
  if (!is_candidate(x, residual, norm, weight, bias) || weight.strides()[1] != 1) return {};
  const auto vector = [&](const Tensor& tensor) {
    return tensor.defined() ? as_accumulation(tensor, x.dtype()) : Tensor();
  };
  args.x = x.detach().contiguous().reshape({rows, in});
  if (residual.defined()) {
    args.residual = residual_parts(residual, x);
    args.h = Tensor::empty({rows, in}, x.dtype(), x.device());
  }
  args.norm = norm;
  args.norm.weight = vector(norm.weight);
  args.norm.bias = vector(norm.bias);
  args.weight = weight.detach();
  args.bias = vector(bias);
  const int64_t out = args.gated ? weight.dim(0) / 2 : weight.dim(0);
  args.y = Tensor::empty({rows, out}, x.dtype(), x.device());
  bool done = false;
  LAMINA_LAUNCH_CUDA(norm_linear_forward, args, done);
  if (!done) return {};
  x.device().add_work({2 * rows * weight.numel() + 4 * args.x.numel(), work_bytes(args.x, residual, weight, args.y)});
  Shape shape = x.shape();
  shape[-1] = out;
  return {residual.defined() ? args.h.reshape(x.shape()) : x, args.y.reshape(shape)};
}

}  // namespace

void check_projection(const char* op, const Tensor& x, const LinearWeight& weight, const Tensor& bias) {
  weight.is_quantized() ? check_quantized_linear(op, x, weight.quantized, bias)
                        : check_linear(op, x, weight.plain, bias);
}

Tensor project(const Tensor& x, const LinearWeight& weight, const Tensor& bias, Activation activation) {
  if (weight.is_quantized()) return quantized_linear(x, weight.quantized, bias, activation);
  if (!weight.settled || is_tracked({x, weight.plain, bias})) return linear(x, weight.plain, bias, activation);
  check_linear("linear", x, weight.plain, bias);
  return run_linear(x, weight.plain, bias, activation, false, true).y.reshape(linear_shape(x, weight.plain));
}

Tensor project_gated(const Tensor& x, const LinearWeight& weight, const Tensor& bias, Gate gate,
                     const GateOptions& options) {
  if (weight.is_quantized()) return quantized_gated_linear(x, weight.quantized, bias, gate, options);
  if (!weight.settled) return gated_linear(x, weight.plain, bias, gate, options);
  check_linear("gated_linear", x, weight.plain, bias);
  return run_gated_linear(x, weight.plain, bias, gate, options, true);
}

NormLinear norm_linear(const Tensor& x, const Tensor& residual, const RowNorm& norm, const LinearWeight& weight,
                       const Tensor& bias, Activation activation) {
  const char* op = "norm_linear";
  check_projection(op, x, weight, bias);
  check_row_norm(op, x, residual, norm);
  NormLinear one = in_one_launch(x, residual, norm, weight, bias, {.activation = activation});
  if (one.y.defined()) return one;
  require_kernel(x.device(), "norm_linear", "composed");
  const auto [h, y] = residual_norm(x, residual, norm);
  return {h, project(y, weight, bias, activation)};
}

NormLinear norm_gated_linear(const Tensor& x, const Tensor& residual, const RowNorm& norm, const LinearWeight& weight,
                             const Tensor& bias, Gate gate, const GateOptions& options) {
  const char* op = "norm_gated_linear";
  check_projection(op, x, weight, bias);
  check_row_norm(op, x, residual, norm);
  LAMINA_CHECK(weight.dim(0) % 2 == 0, op, ": weight is ", weight.shape(),
               "; expected an even number of rows: gate and up stacked");
  check_gate(op, options);
  NormLinear one = in_one_launch(x, residual, norm, weight, bias, {.gated = true, .gate = gate, .options = options});
  if (one.y.defined()) return one;
  require_kernel(x.device(), "norm_linear", "composed");
  const auto [h, y] = residual_norm(x, residual, norm);
  return {h, project_gated(y, weight, bias, gate, options)};
}

}  // namespace lamina::ops
