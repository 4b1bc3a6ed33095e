// One pass over the elements.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/ops/elementwise/clamp_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lamina/base/simd_math-inl.h"
#include "lamina/ops/elementwise/clamp.h"
#include "lamina/ops/elementwise/elements-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {

template <class T>
void forward(const Tensor& x_in, double low, double high, const Tensor& y) {
  const T* x = x_in.data<T>();
  write_elements(y.device().threads(), y.data<T>(), y.numel(), [&](int64_t i, size_t count) HWY_ATTR {
    const ComputeTag<T> d;
    return hn::Min(hn::Max(load_n(d, x + i, count), constant(d, low)), constant(d, high));
  });
}

template <class T>
void backward(const Tensor& x_in, const Tensor& dy_in, double low, double high, const Tensor& dx) {
  const T* x = x_in.data<T>();
  const T* dy = dy_in.data<T>();
  write_elements(dx.device().threads(), dx.data<T>(), dx.numel(), [&](int64_t i, size_t count) HWY_ATTR {
    const ComputeTag<T> d;
    const auto value = load_n(d, x + i, count);
    const auto inside = hn::And(hn::Ge(value, constant(d, low)), hn::Le(value, constant(d, high)));
    return hn::IfThenElseZero(inside, load_n(d, dy + i, count));
  });
}

void clamp_forward(const Tensor& x, double low, double high, const Tensor& y) {
  visit_floating(x.dtype(), [&](auto tag) { forward<typename decltype(tag)::type>(x, low, high, y); });
}
void clamp_backward(const Tensor& x, const Tensor& dy, double low, double high, const Tensor& dx) {
  visit_floating(x.dtype(), [&](auto tag) { backward<typename decltype(tag)::type>(x, dy, low, high, dx); });
}

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lamina::ops {
HWY_EXPORT(clamp_forward);
HWY_EXPORT(clamp_backward);

namespace cpu {
void clamp_forward(const Tensor& x, double low, double high, const Tensor& y) {
  HWY_DYNAMIC_DISPATCH(clamp_forward)(x, low, high, y);
}
void clamp_backward(const Tensor& x, const Tensor& dy, double low, double high, const Tensor& dx) {
  HWY_DYNAMIC_DISPATCH(clamp_backward)(x, dy, low, high, dx);
}
}  // namespace cpu
}  // namespace lamina::ops
#endif
