#include "lamina/ops/linear/feed_forward_step_kernel.h"

#include "lamina/autograd/tape.h"
#include "lamina/ops/kernel_dispatch.h"
#include "lamina/ops/launch.h"

namespace lamina::ops {
namespace {

constexpr const char* kStepTable = "feed_forward_step";

void check_step_weights(const char* op, const Tensor& x, const FeedForwardWeights& weights, int64_t units) {
  check_floating(op, "weights.down", weights.down);
  check_shape(op, "weights.down", weights.down, {x.dim(-1), units});
  if (!weights.down_bias.defined()) return;
  check_floating(op, "weights.down_bias", weights.down_bias);
  check_shape(op, "weights.down_bias", weights.down_bias, {x.dim(-1)});
}

/// Tries the single launch. `args` says which activation or gate to apply. Returns undefined tensors if the kernel does
/// not support the case.
SublayerOutput in_one_step(const Tensor& x, const Tensor& residual, const RowNorm& norm,
                           const FeedForwardWeights& weights, FeedForwardStep args) {
  const auto taken = [](const Tensor& weight) { return weight.dtype() == DType::bf16 && weight.numel() > 0; };
  if (!allows_kernel(x.device(), kStepTable, "one_launch")) return {};
  if (!taken(weights.up) || !taken(weights.down)) return {};
  if (is_tracked({weights.up, weights.up_bias, weights.down, weights.down_bias})) return {};
  args.stream = step_stream(x, residual, norm);
  if (!args.stream.x.defined()) return {};
  const auto vector = [&](const Tensor& tensor) {
    return tensor.defined() ? as_accumulation(tensor, x.dtype()) : Tensor();
  };
  args.weights = {weights.up.contiguous(), vector(weights.up_bias), weights.down.contiguous(),
                  vector(weights.down_bias)};
  args.stream.weights_just_written = !weights.up.is_contiguous() || !weights.down.is_contiguous();
  Tensor parts;
  LAMINA_LAUNCH_CUDA(feed_forward_step, args, parts);
  if (!parts.defined()) return {};
  x.device().add_work({2 * (weights.up.numel() + weights.down.numel()) + 4 * x.numel(),
                       weights.up.nbytes() + weights.down.nbytes() + parts.nbytes() + 2 * x.nbytes()});
  return args.stream.finished(x, parts);
}

/// Returns the weight, contiguous if no gradient is tracked: kernels for strided weights would sum in another order.
LinearWeight settled_weight(const Tensor& weight) {
  LinearWeight dense = is_tracked({weight}) ? weight : weight.contiguous();
  dense.settled = weight.is_contiguous();
  return dense;
}

}  // namespace

SublayerOutput single_part(const Tensor& h, const Tensor& y) {
  Shape shape{1};
  for (const int64_t extent : y.shape()) shape.push_back(extent);
  return {h, y.reshape(shape)};
}

SublayerOutput ResidualInput::finished(const Tensor& given, const Tensor& parts) const {
  Shape shape{parts.dim(0)};
  for (const int64_t extent : given.shape()) shape.push_back(extent);
  return {h.defined() ? h.reshape(given.shape()) : given, parts.reshape(shape)};
}

ResidualInput step_stream(const Tensor& x, const Tensor& residual, const RowNorm& norm) {
  const int64_t width = x.dim(-1);
  const bool taken = x.device().kind() == DeviceKind::cuda && x.dtype() == DType::f32 && x.shape().rows() == 1 &&
                     (norm.options.group_size == 0 || norm.options.group_size == width) &&
                     !is_tracked({x, residual, norm.weight, norm.bias});
  if (!taken) return {};
  ResidualInput stream;
  stream.x = x.contiguous().reshape({width});
  if (residual.defined()) {
    stream.residual = residual.contiguous().reshape({residual.numel() / width, width});
    stream.h = Tensor::empty({width}, DType::f32, x.device());
  }
  stream.norm = norm;
  if (norm.weight.defined()) stream.norm.weight = as_accumulation(norm.weight, x.dtype());
  if (norm.bias.defined()) stream.norm.bias = as_accumulation(norm.bias, x.dtype());
  return stream;
}

SublayerOutput feed_forward_step(const Tensor& x, const Tensor& residual, const RowNorm& norm,
                                 const FeedForwardWeights& weights, Activation activation) {
  const char* op = "feed_forward_step";
  check_linear(op, x, weights.up, weights.up_bias);
  check_row_norm(op, x, residual, norm);
  check_step_weights(op, x, weights, weights.up.dim(0));
  SublayerOutput one = in_one_step(x, residual, norm, weights, {.activation = activation});
  if (one.parts.defined()) return one;
  require_kernel(x.device(), kStepTable, "composed");
  const bool tracked =
      is_tracked({x, residual, norm.weight, norm.bias, weights.up, weights.up_bias, weights.down, weights.down_bias});
  if (tracked) {  // feed_forward() has a fused backward
    const auto [h, y] = residual_norm(x, residual, norm);
    return single_part(h, feed_forward(y, weights, activation));
  }
  const auto [h, y] = norm_linear(x, residual, norm, settled_weight(weights.up), weights.up_bias, activation);
  return single_part(h, project(y, settled_weight(weights.down), weights.down_bias));
}

SublayerOutput gated_feed_forward_step(const Tensor& x, const Tensor& residual, const RowNorm& norm,
                                       const FeedForwardWeights& weights, Gate gate, const GateOptions& options) {
  const char* op = "gated_feed_forward_step";
  check_linear(op, x, weights.up, weights.up_bias);
  check_row_norm(op, x, residual, norm);
  LAMINA_CHECK(weights.up.dim(0) % 2 == 0, op, ": weights.up is ", weights.up.shape(),
               "; expected an even number of rows: gate and up stacked");
  check_step_weights(op, x, weights, weights.up.dim(0) / 2);
  check_gate(op, options);
  SublayerOutput one = in_one_step(x, residual, norm, weights, {.gated = true, .gate = gate, .options = options});
  if (one.parts.defined()) return one;
  require_kernel(x.device(), kStepTable, "composed");
  const auto [h, y] = norm_gated_linear(x, residual, norm, settled_weight(weights.up), weights.up_bias, gate, options);
  return single_part(h, project(y, settled_weight(weights.down), weights.down_bias));
}

}  // namespace lamina::ops
