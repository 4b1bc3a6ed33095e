// Operators that memory limits, as shares of the bandwidth a triad reaches in the same run. The bytes are those of the
// tensors that must be read and written once: x and y forward; x, dy and dx backward.
#include "lamina/autograd/tape.h"
#include "lamina/ops/activation/activation.h"
#include "lamina/ops/activation/gated_activation.h"
#include "lamina/ops/norm/layer_norm.h"
#include "lamina/ops/norm/rms_norm.h"
#include "support/suite.h"

namespace lamina::bench {
namespace {

using Operator = std::function<Tensor(const Tensor&)>;

Tensor ramp(const Shape& shape, DType dtype, const Device& device) {
  const Tensor tensor = Tensor::empty(shape, DType::f32, device);
  auto* values = tensor.data<float>();
  for (int64_t i = 0; i < tensor.numel(); ++i) values[i] = static_cast<float>(i * 7919 % 2003) / 1000.0F - 1.0F;
  return tensor.to(dtype);
}

struct Times {
  double forward, backward;
};

/// Forward alone, and backward alone over a kept record.
Times time_both(Context& context, const Tensor& x, std::vector<Tensor> weights, const Operator& op) {
  const double forward = context.seconds([&] { op(x); });
  Tape tape;
  Tensor leaf = x.slice(0, 0, x.dim(0));
  tape.watch(leaf);
  for (Tensor& weight : weights) tape.watch(weight);
  const Tensor y = op(leaf);
  const Tensor dy = ramp(y.shape(), y.dtype(), x.device());
  const double backward = context.seconds([&] {
    tape.zero_grad();
    tape.backward({y}, {dy}, true);
  });
  return {forward, backward};
}

void add_share(Context& context, const std::string& what, int64_t bytes, double seconds,
               std::optional<double> at_least = std::nullopt) {
  context.add(
      {what, static_cast<double>(bytes) / seconds * 1e-9, context.bandwidth(), "GB/s", "memory bandwidth", at_least});
}

void add_norms(Context& context, int64_t rows, int64_t width, bool must_reach) {
  const Tensor x = ramp({rows, width}, DType::f32, context.device());
  const Tensor weight = ramp({width}, DType::f32, context.device());
  const Tensor bias = ramp({width}, DType::f32, context.device());
  const std::string at = str(" ", x.shape());
  const auto forward = must_reach ? std::optional(0.8) : std::nullopt;
  const auto backward = must_reach ? std::optional(0.6) : std::nullopt;
  const Times rms = time_both(context, x, {weight}, [&](const Tensor& in) { return ops::rms_norm(in, weight); });
  add_share(context, "rms_norm forward" + at, 2 * x.nbytes(), rms.forward, forward);
  add_share(context, "rms_norm backward" + at, 3 * x.nbytes(), rms.backward, backward);
  const Times layer =
      time_both(context, x, {weight, bias}, [&](const Tensor& in) { return ops::layer_norm(in, weight, bias); });
  add_share(context, "layer_norm forward" + at, 2 * x.nbytes(), layer.forward, forward);
  add_share(context, "layer_norm backward" + at, 3 * x.nbytes(), layer.backward, backward);
  context.add({"rms_norm forward" + at, 1e3 * rms.forward, 1e3 * layer.forward, "ms", "layer_norm"});
  context.add({"rms_norm backward" + at, 1e3 * rms.backward, 1e3 * layer.backward, "ms", "layer_norm"});
}

}  // namespace

LAMINA_BENCH_SUITE(norms) {
  add_norms(context, 16384, 4096, true);
  add_norms(context, 256, 1024, false);
}

}  // namespace lamina::bench
