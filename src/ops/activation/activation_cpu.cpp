// One pass over the elements. Cheap functions such as relu are memory-bound. For the others, the exponential and the
// division also limit the speed.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/ops/activation/activation_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lamina/ops/activation/activation-inl.h"
#include "lamina/ops/activation/activation_kernel.h"
#include "lamina/ops/elementwise/elements-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {

void activation_forward(const Tensor& x, Activation function, const Tensor& y) {
  visit_activation(
      function, [&](auto f) { map_elements(x, y, [=](auto d, auto v) HWY_ATTR { return decltype(f)::value(d, v); }); });
}
void activation_backward(const Tensor& x, const Tensor& dy, Activation function, const Tensor& dx) {
  visit_activation(function, [&](auto f) {
    map_gradients(x, dy, dx,
                  [=](auto d, auto v, auto g) HWY_ATTR { return hn::Mul(g, decltype(f)::both(d, v).slope); });
  });
}

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lamina::ops {
HWY_EXPORT(activation_forward);
HWY_EXPORT(activation_backward);

namespace cpu {
void activation_forward(const Tensor& x, Activation function, const Tensor& y) {
  HWY_DYNAMIC_DISPATCH(activation_forward)(x, function, y);
}
void activation_backward(const Tensor& x, const Tensor& dy, Activation function, const Tensor& dx) {
  HWY_DYNAMIC_DISPATCH(activation_backward)(x, dy, function, dx);
}
}  // namespace cpu
}  // namespace lamina::ops
#endif
