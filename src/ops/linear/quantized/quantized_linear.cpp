#include "lamina/ops/linear/quantized_linear_kernel.h"

#include "lamina/autograd/tape.h"
#include "lamina/ops/launch.h"
#include "lamina/ops/linear/fused/few_rows_cuda.h"

namespace lamina::ops {
namespace {

/// The kernel arguments that are the same on all devices, without y.
QuantizedLinear product_of(const Tensor& x, const QuantizedWeight& weight, const Tensor& bias, DType type) {
  QuantizedLinear args;
  args.x = x.detach().to(type).contiguous().reshape({x.shape().rows(), weight.in});
  args.weight = weight;
  if (bias.defined()) args.bias = as_accumulation(bias, x.dtype());
  args.activation = Activation::none;
  return args;
}

Work work_of(const QuantizedLinear& args) {
  return {2 * args.x.dim(0) * args.weight.out * args.weight.in,
          args.x.nbytes() + args.weight.data.nbytes() + args.y.nbytes()};
}

}  // namespace

void check_quantized_linear(const char* op, const Tensor& x, const QuantizedWeight& weight, const Tensor& bias) {
  LAMINA_CHECK(weight.defined(), op, ": the weight is undefined; create it with quantize()");
  check_floating(op, "x", x);
  LAMINA_CHECK(x.dtype() != DType::f64, op, ": x is f64; expected f32, bf16 or f16; convert with to(dtype)");
  check_rank_at_least(op, "x", x, 1);
  LAMINA_CHECK(weight.in == x.dim(-1), op, ": the weight is [", weight.out, ", ", weight.in, "]; expected [out, ",
               x.dim(-1), "] for x ", x.shape());
  if (bias.defined()) {
    check_floating(op, "bias", bias);
    check_shape(op, "bias", bias, {weight.out});
  }
  check_same_device(op, {x, weight.data, bias});
  LAMINA_CHECK(!is_tracked({x, bias}), op, ": has no gradient; use linear(), or disable recording with NoGrad");
}

std::string_view name_of(QuantizedFormat format) { return format == QuantizedFormat::q8 ? "q8" : "q4"; }

QuantizedWeight quantize(const Tensor& weight, QuantizedFormat format) {
  check_floating("quantize", "weight", weight);
  LAMINA_CHECK(weight.rank() == 2, "quantize: the weight is ", weight.shape(), "; expected [out, in]");
  QuantizedWeight to{{}, weight.dim(0), weight.dim(1), format};
  to.data = Tensor::empty({to.groups(), to.group_bytes()}, DType::u8, weight.device());
  const Quantize args{weight.detach().to(DType::f32).contiguous(), to};
  LAMINA_LAUNCH(weight.device(), (Work{8 * weight.numel(), args.weight.nbytes() + to.data.nbytes()}), quantize, args);
  return to;
}

Tensor dequantize(const QuantizedWeight& weight) {
  LAMINA_CHECK(weight.defined(), "dequantize: the weight is undefined; create it with quantize()");
  Tensor to = Tensor::empty({weight.out, weight.in}, DType::f32, weight.data.device());
  LAMINA_LAUNCH(to.device(), (Work{to.numel(), to.nbytes() + weight.data.nbytes()}), dequantize, weight, to);
  return to;
}

Tensor quantized_linear(const Tensor& x, const QuantizedWeight& weight, const Tensor& bias, Activation activation) {
  check_quantized_linear("quantized_linear", x, weight, bias);
  const int64_t rows = x.shape().rows();
  const Device& device = x.device();
  const bool on_cuda = device.kind() == DeviceKind::cuda;
  const DType type = on_cuda ? x.dtype() : DType::f32;
  QuantizedLinear args = product_of(x, weight, bias, type);
  args.activation = activation;
  args.y = Tensor::empty({rows, weight.out}, type, device);
  if (!on_cuda) {
    const int64_t padded = (rows + 15) / 16 * 16;  // rounded up to whole tiles
    args.numbers = Tensor::empty({padded, weight.blocks() * QuantizedWeight::kBlock}, DType::u8, device);
    args.scales = Tensor::empty({padded, weight.blocks()}, DType::f32, device);
    args.offset_corrections = Tensor::empty({padded, weight.blocks()}, DType::i32, device);
  }
  LAMINA_LAUNCH(device, work_of(args), quantized_linear, args);
  Shape shape = x.shape();
  shape[-1] = weight.out;
  return args.y.reshape(shape).to(x.dtype());
}

Tensor quantized_gated_linear(const Tensor& x, const QuantizedWeight& weight, const Tensor& bias, Gate gate,
                              const GateOptions& options) {
  const char* op = "quantized_gated_linear";
  check_quantized_linear(op, x, weight, bias);
  LAMINA_CHECK(weight.out % 2 == 0, op, ": the weight is [", weight.out, ", ", weight.in,
               "]; expected an even number of rows: gate and up stacked");
  check_gate(op, options);
  const int64_t n = weight.out / 2;
  const int64_t rows = x.shape().rows();
  const bool fits = x.device().kind() == DeviceKind::cuda && rows <= kMostGatedRows && !options.interleaved &&
                    n % QuantizedWeight::kRows == 0;
  QuantizedGatedLinear args;
  bool one_launch = fits && rows <= kFewRows;
  if (fits) {
    args = {product_of(x, weight, bias, x.dtype()), gate, options};
    args.product.y = Tensor::empty({rows, n}, x.dtype(), x.device());
    if (!one_launch) LAMINA_LAUNCH_CUDA(quantized_gated_rows, args, one_launch);
  }
  if (!one_launch) {
    // On a CPU the product is computed in f32; do not round it before the gate.
    const DType between = x.device().kind() == DeviceKind::cuda ? x.dtype() : DType::f32;
    return gated_activation(quantized_linear(x.to(between), weight, bias), gate, options).to(x.dtype());
  }
  x.device().add_work(work_of(args.product));
  if (rows <= kFewRows) LAMINA_LAUNCH_CUDA(quantized_gated_linear, args);
  Shape shape = x.shape();
  shape[-1] = n;
  return args.product.y.reshape(shape);
}

}  // namespace lamina::ops
