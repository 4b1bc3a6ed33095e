// One pass over the elements. The cheap functions run at the speed of memory; the others spend about as long on their
// exponential and division.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/ops/activation/activation_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lamina/ops/activation/activation-inl.h"
#include "lamina/ops/activation/activation.h"
#include "lamina/ops/elementwise/elements-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {

template <class T, class Function>
void forward(const Tensor& x_in, const Tensor& y) {
  const T* x = x_in.data<T>();
  write_elements(y.device().threads(), y.data<T>(), y.numel(), [&](int64_t i, size_t count) HWY_ATTR {
    const ComputeTag<T> d;
    return Function::value(d, load_n(d, x + i, count));
  });
}

template <class T, class Function>
void backward(const Tensor& x_in, const Tensor& dy_in, const Tensor& dx) {
  const T* x = x_in.data<T>();
  const T* dy = dy_in.data<T>();
  write_elements(dx.device().threads(), dx.data<T>(), dx.numel(), [&](int64_t i, size_t count) HWY_ATTR {
    const ComputeTag<T> d;
    return hn::Mul(load_n(d, dy + i, count), Function::both(d, load_n(d, x + i, count)).slope);
  });
}

void activation_forward(const Tensor& x, Activation function, const Tensor& y) {
  visit_floating(x.dtype(), [&](auto type) {
    visit_activation(function, [&](auto f) { forward<typename decltype(type)::type, decltype(f)>(x, y); });
  });
}
void activation_backward(const Tensor& x, const Tensor& dy, Activation function, const Tensor& dx) {
  visit_floating(x.dtype(), [&](auto type) {
    visit_activation(function, [&](auto f) { backward<typename decltype(type)::type, decltype(f)>(x, dy, dx); });
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
