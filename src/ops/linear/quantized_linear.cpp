#include "lamina/ops/linear/quantized_linear.h"

#include "lamina/autograd/tape.h"
#include "lamina/ops/launch.h"

namespace lamina::ops {
namespace {

constexpr const char* kOp = "quantized_linear";

void check_arguments(const Tensor& x, const QuantizedWeight& weight, const Tensor& bias) {
  LAMINA_CHECK(weight.defined(), kOp, ": the weight is undefined; make it with quantize");
  check_floating(kOp, "x", x);
  LAMINA_CHECK(x.dtype() != DType::f64, kOp, ": x is f64; expected f32, bf16 or f16; convert with to(dtype)");
  check_rank_at_least(kOp, "x", x, 1);
  LAMINA_CHECK(weight.in == x.dim(-1), kOp, ": the weight is [", weight.out, ", ", weight.in, "]; expected [out, ",
               x.dim(-1), "] for x ", x.shape());
  if (bias.defined()) {
    check_floating(kOp, "bias", bias);
    check_shape(kOp, "bias", bias, {weight.out});
  }
  check_same_device(kOp, {x, weight.data, bias});
  LAMINA_CHECK(!is_tracked({x, bias}), kOp, ": has no gradient; use linear, or turn recording off with NoGrad");
}

}  // namespace

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
  LAMINA_CHECK(weight.defined(), "dequantize: the weight is undefined; make it with quantize");
  const Tensor to = Tensor::empty({weight.out, weight.in}, DType::f32, weight.data.device());
  LAMINA_LAUNCH(to.device(), (Work{to.numel(), to.nbytes() + weight.data.nbytes()}), dequantize, weight, to);
  return to;
}

Tensor quantized_linear(const Tensor& x, const QuantizedWeight& weight, const Tensor& bias, Activation activation) {
  check_arguments(x, weight, bias);
  const int64_t rows = x.shape().rows();
  const Device& device = x.device();
  const bool on_cuda = device.kind() == DeviceKind::cuda;
  const DType type = on_cuda ? x.dtype() : DType::f32;
  QuantizedLinear args;
  args.x = x.detach().to(type).contiguous().reshape({rows, weight.in});
  args.weight = weight;
  if (bias.defined()) args.bias = as_accumulation(bias, x.dtype());
  args.activation = activation;
  args.y = Tensor::empty({rows, weight.out}, type, device);
  if (!on_cuda) {
    args.numbers = Tensor::empty({rows, weight.blocks() * QuantizedWeight::kBlock}, DType::u8, device);
    args.scales = Tensor::empty({rows, weight.blocks()}, DType::f32, device);
    args.corrects = Tensor::empty({rows, weight.blocks()}, DType::i32, device);
  }
  const Work work{2 * rows * weight.out * weight.in, x.nbytes() + weight.data.nbytes() + args.y.nbytes()};
  LAMINA_LAUNCH(device, work, quantized_linear, args);
  Shape shape = x.shape();
  shape[-1] = weight.out;
  return args.y.reshape(shape).to(x.dtype());
}

}  // namespace lamina::ops
