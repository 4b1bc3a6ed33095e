// One pass over the elements.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/ops/elementwise/soft_cap_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lamina/base/simd_math-inl.h"
#include "lamina/ops/elementwise/elements-inl.h"
#include "lamina/ops/elementwise/soft_cap.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {

template <class T>
void forward(const Tensor& x_in, double cap, const Tensor& y) {
  const T* x = x_in.data<T>();
  write_elements(y.device().threads(), y.data<T>(), y.numel(), [&](int64_t i, size_t count) HWY_ATTR {
    const ComputeTag<T> d;
    const auto inside = hn::Div(load_n(d, x + i, count), constant(d, cap));
    return hn::Mul(constant(d, cap), tanh_pair(d, inside).value);
  });
}

template <class T>
void backward(const Tensor& x_in, const Tensor& dy_in, double cap, const Tensor& dx) {
  const T* x = x_in.data<T>();
  const T* dy = dy_in.data<T>();
  write_elements(dx.device().threads(), dx.data<T>(), dx.numel(), [&](int64_t i, size_t count) HWY_ATTR {
    const ComputeTag<T> d;
    const auto inside = hn::Div(load_n(d, x + i, count), constant(d, cap));
    return hn::Mul(load_n(d, dy + i, count), tanh_pair(d, inside).slope);
  });
}

void soft_cap_forward(const Tensor& x, double cap, const Tensor& y) {
  visit_floating(x.dtype(), [&](auto tag) { forward<typename decltype(tag)::type>(x, cap, y); });
}
void soft_cap_backward(const Tensor& x, const Tensor& dy, double cap, const Tensor& dx) {
  visit_floating(x.dtype(), [&](auto tag) { backward<typename decltype(tag)::type>(x, dy, cap, dx); });
}

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lamina::ops {
HWY_EXPORT(soft_cap_forward);
HWY_EXPORT(soft_cap_backward);

namespace cpu {
void soft_cap_forward(const Tensor& x, double cap, const Tensor& y) {
  HWY_DYNAMIC_DISPATCH(soft_cap_forward)(x, cap, y);
}
void soft_cap_backward(const Tensor& x, const Tensor& dy, double cap, const Tensor& dx) {
  HWY_DYNAMIC_DISPATCH(soft_cap_backward)(x, dy, cap, dx);
}
}  // namespace cpu
}  // namespace lamina::ops
#endif
