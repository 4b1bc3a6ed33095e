// One pass over the elements.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/ops/elementwise/scaled_exp_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lamina/base/simd_math-inl.h"
#include "lamina/ops/elementwise/elements-inl.h"
#include "lamina/ops/elementwise/scaled_exp.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {

template <class T>
void scaled_exp_values(const Tensor& x_in, double factor, const Tensor& y) {
  const T* x = x_in.data<T>();
  write_elements(y.device().threads(), y.data<T>(), y.numel(), [&](int64_t i, size_t count) HWY_ATTR {
    const ComputeTag<T> d;
    return hn::Mul(constant(d, factor), exp(d, load_n(d, x + i, count)));
  });
}

template <class T>
void scaled_exp_slopes(const Tensor& x_in, const Tensor& dy_in, double factor, const Tensor& dx) {
  const T* x = x_in.data<T>();
  const T* dy = dy_in.data<T>();
  write_elements(dx.device().threads(), dx.data<T>(), dx.numel(), [&](int64_t i, size_t count) HWY_ATTR {
    const ComputeTag<T> d;
    return hn::Mul(load_n(d, dy + i, count), hn::Mul(constant(d, factor), exp(d, load_n(d, x + i, count))));
  });
}

void scaled_exp_forward(const Tensor& x, double factor, const Tensor& y) {
  visit_floating(x.dtype(), [&](auto tag) { scaled_exp_values<typename decltype(tag)::type>(x, factor, y); });
}
void scaled_exp_backward(const Tensor& x, const Tensor& dy, double factor, const Tensor& dx) {
  visit_floating(x.dtype(), [&](auto tag) { scaled_exp_slopes<typename decltype(tag)::type>(x, dy, factor, dx); });
}

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lamina::ops {
HWY_EXPORT(scaled_exp_forward);
HWY_EXPORT(scaled_exp_backward);

namespace cpu {
void scaled_exp_forward(const Tensor& x, double factor, const Tensor& y) {
  HWY_DYNAMIC_DISPATCH(scaled_exp_forward)(x, factor, y);
}
void scaled_exp_backward(const Tensor& x, const Tensor& dy, double factor, const Tensor& dx) {
  HWY_DYNAMIC_DISPATCH(scaled_exp_backward)(x, dy, factor, dx);
}
}  // namespace cpu
}  // namespace lamina::ops
#endif
