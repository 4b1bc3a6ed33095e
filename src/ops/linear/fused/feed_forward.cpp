#include "lamina/ops/linear/feed_forward.h"

#include <utility>

#include "lamina/ops/launch.h"
#include "lamina/ops/linear/linear_layer.h"

namespace lamina::ops {
namespace {

enum FeedForwardInput : int { kX, kUp, kUpBias, kDown, kDownBias };
enum FeedForwardSaved : int { kSavedX, kSavedUp, kSavedZ, kSavedH, kSavedDown };

void run_layers_backward(Backward& b, const Shape& x_shape, Activation activation) {
  const Tensor& x = b.saved(kSavedX);
  const Device& device = x.device();
  LinearBackward down;
  down.x = b.saved(kSavedH).defined() ? b.saved(kSavedH) : ops::activation(b.saved(kSavedZ), activation);
  down.weight = b.saved(kSavedDown);
  down.dz = b.grad(0).reshape({x.dim(0), down.weight.dim(0)});
  const bool needs_up = b.needs(kX) || b.needs(kUp) || b.needs(kUpBias);
  if (needs_up) down.dx = Tensor::empty(down.x.shape(), x.dtype(), device);
  const bool fuses_activation = needs_up && device.like() == DeviceKind::cuda && activation == Activation::gelu_tanh;
  if (fuses_activation) down.z = b.saved(kSavedZ);
  add_layer_gradients(b, kDown, down);
  if (!needs_up) return;

  LinearBackward up;
  up.x = x;
  up.weight = b.saved(kSavedUp);
  up.dz = std::move(down.dx);
  Tensor dbias;
  if (!fuses_activation && activation != Activation::none) {
    if (b.needs(kUpBias)) dbias = Tensor::empty({up.weight.dim(0)}, accumulation_type(x.dtype()), device);
    up.dz = gradient_of_activation(b.saved(kSavedZ), up.dz, activation, dbias);
  }
  if (b.needs(kX)) up.dx = Tensor::empty(x.shape(), x.dtype(), device);
  add_layer_gradients(b, kUp, up, std::move(dbias));
  if (!b.needs(kX)) return;
  Tensor dx = std::exchange(up.dx, Tensor()).reshape(x_shape);  // sole owner, so add() does not copy
  b.add(kX, std::move(dx));
}

}  // namespace

Tensor feed_forward(const Tensor& x, const FeedForwardWeights& weights, Activation activation,
                    HiddenActivations hidden) {
  const char* op = "feed_forward";
  const auto& [up, up_bias, down, down_bias] = weights;
  check_linear(op, x, up, up_bias);
  check_floating(op, "down", down);
  LAMINA_CHECK(down.rank() == 2 && down.dim(1) == up.dim(0), op, ": down is ", down.shape(), "; expected [out, ",
               up.dim(0), "] for up ", up.shape(), "; take both from the same model or fix d_ff");
  const bool tracked = is_tracked({x, up, up_bias, down, down_bias});
  const LinearForward inner = run_linear(x, up, up_bias, activation, tracked);
  const Tensor h = inner.y.reshape(linear_shape(x, up));
  check_linear(op, h, down, down_bias);
  const LinearForward outer = run_linear(h, down, down_bias, Activation::none, false);
  Tensor y = outer.y.reshape(linear_shape(h, down));
  const bool recomputes = hidden == HiddenActivations::recomputed && inner.z.defined();
  record(op, {x, up, up_bias, down, down_bias}, {y},
         {inner.x, inner.weight, inner.z, recomputes ? Tensor() : outer.x, outer.weight},
         [shape = x.shape(), activation](Backward& b) { run_layers_backward(b, shape, activation); });
  return y;
}

}  // namespace lamina::ops
