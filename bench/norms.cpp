// Memory-bound operators as a share of the triad bandwidth in the same run. Bytes are the minimum traffic: x and y
// forward; x, dy and dx backward.
#include "lamina/autograd/taped_call.h"
#include "lamina/ops/activation/activation.h"
#include "lamina/ops/activation/gated_activation.h"
#include "lamina/ops/dropout/dropout.h"
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

Tensor ramp_like(const Tensor& other) { return ramp(other.shape(), other.dtype(), other.device()); }

void add_norms(Context& context, int64_t rows, int64_t width, bool must_reach) {
  const Tensor x = ramp({rows, width}, DType::f32, context.device());
  const Tensor weight = ramp({width}, DType::f32, context.device());
  const Tensor bias = ramp({width}, DType::f32, context.device());
  const std::string at = str(" ", x.shape());
  const auto forward = must_reach ? std::optional(0.8) : std::nullopt;
  const auto backward = must_reach ? std::optional(0.6) : std::nullopt;
  const Operator rms = [&](const Tensor& in) { return ops::rms_norm(in, weight); };
  const Operator layer = [&](const Tensor& in) { return ops::layer_norm(in, weight, bias); };
  using Tensors = std::vector<Tensor>;
  TapedCall rms_back(
      {x, weight}, [](const Tensors& in) { return Tensors{ops::rms_norm(in[0], in[1])}; }, ramp_like);
  TapedCall layer_back(
      {x, weight, bias}, [](const Tensors& in) { return Tensors{ops::layer_norm(in[0], in[1], in[2])}; }, ramp_like);
  // Small tensors stay in the CPU caches; interleaved triad runs would evict them.
  const std::vector<std::function<void()>> calls{[&] { rms(x); }, [&] { layer(x); }, [&] { rms_back.backward(); },
                                                 [&] { layer_back.backward(); }};
  const auto [seconds, bandwidth] =
      must_reach ? context.beside_memory(calls) : Context::BesideMemory{context.seconds(calls), context.bandwidth()};
  const double rms_forward = seconds[0];
  const double layer_forward = seconds[1];
  const double rms_backward = seconds[2];
  const double layer_backward = seconds[3];
  context.add_speed("rms_norm forward" + at, 2 * x.nbytes(), rms_forward, bandwidth, forward);
  context.add_speed("layer_norm forward" + at, 2 * x.nbytes(), layer_forward, bandwidth, forward);
  context.add_speed("rms_norm backward" + at, 3 * x.nbytes(), rms_backward, bandwidth, backward);
  context.add_speed("layer_norm backward" + at, 3 * x.nbytes(), layer_backward, bandwidth, backward);
  // If both are memory-bound, they take the same time up to measurement noise.
  const double at_most = must_reach ? 1.05 : 1.0;
  context.add({"rms_norm forward" + at, 1e3 * rms_forward, 1e3 * layer_forward, "ms", "layer_norm", {}, at_most});
  context.add({"rms_norm backward" + at, 1e3 * rms_backward, 1e3 * layer_backward, "ms", "layer_norm", {}, at_most});
}

/// Forward and backward of an operator whose output has x's type, against memory bandwidth.
void add_operator(Context& context, const std::string& name, const Tensor& x, const Operator& op) {
  const int64_t out = op(x).nbytes();
  const std::string at = str(" ", x.shape());
  context.add_speed(name + " forward" + at, x.nbytes() + out, context.seconds([&] { op(x); }));
  TapedCall back(
      {x}, [&](const std::vector<Tensor>& in) { return std::vector{op(in[0])}; }, ramp_like);
  context.add_speed(name + " backward" + at, 2 * x.nbytes() + out, context.seconds([&] { back.backward(); }));
}

void add_cast(Context& context, DType from, DType to) {
  const Tensor x = ramp({8192, 4096}, from, context.device());
  const int64_t bytes = x.nbytes() + x.numel() * static_cast<int64_t>(size_of(to));
  context.add_speed(str("cast ", from, " to ", to), bytes, context.seconds([&] { x.to(to); }));
}

/// One call with one thread and with all threads, interleaved.
void add_thread_gain(Context& context, const std::string& name, const Shape& shape, const Operator& op) {
  const Tensor x = ramp(shape, DType::f32, context.device());
  const Tensor alone = ramp(shape, DType::f32, context.one_thread());
  const auto [one, all] = context.seconds([&] { op(alone); }, [&] { op(x); });
  const int count = context.device().threads().count();
  context.add({name + " with " + std::to_string(count) + " threads", 1 / all, 1 / one, "1/s", "one thread"});
}

}  // namespace

LAMINA_BENCH_SUITE(norms) {
  add_norms(context, 16384, 4096, true);
  add_norms(context, 64, 4096, false);
  add_norms(context, 256, 1024, false);
  const Operator layer = [](const Tensor& in) { return ops::layer_norm(in); };
  add_thread_gain(context, "layer_norm [16384,4096]", {16384, 4096}, layer);
  add_thread_gain(context, "layer_norm [256,1024]", {256, 1024}, layer);
}

LAMINA_BENCH_SUITE(elementwise) {
  const Tensor x = ramp({8192, 4096}, DType::f32, context.device());
  using ops::Activation;
  for (const Activation f : {Activation::relu, Activation::silu, Activation::gelu, Activation::gelu_tanh}) {
    add_operator(context, std::string(name_of(f)), x, [f](const Tensor& in) { return ops::activation(in, f); });
  }
  add_operator(context, "swiglu", x, [](const Tensor& in) { return ops::gated_activation(in, ops::Gate::swiglu); });
  add_operator(context, "geglu", x, [](const Tensor& in) { return ops::gated_activation(in, ops::Gate::geglu); });
  add_operator(context, "dropout", x, [](const Tensor& in) { return ops::dropout(in, 0.1, {1, 2}); });
  for (const DType half : {DType::bf16, DType::f16}) {
    add_cast(context, DType::f32, half);
    add_cast(context, half, DType::f32);
  }
  Tensor target = ramp({8192, 4096}, DType::f32, context.device());
  context.add_speed("add_", 3 * x.nbytes(), context.seconds([&] { target.add_(x); }));
  context.add_speed("transposing copy", 2 * x.nbytes(), context.seconds([&] { x.transpose(0, 1).contiguous(); }));
  add_thread_gain(context, "gelu", {8192, 4096},
                  [](const Tensor& in) { return ops::activation(in, Activation::gelu); });
  add_thread_gain(context, "dropout", {8192, 4096}, [](const Tensor& in) { return ops::dropout(in, 0.1, {1, 2}); });
}

}  // namespace lamina::bench
