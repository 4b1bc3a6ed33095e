// One pass over the elements (elements-inl.h).
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/ops/elementwise/scaled_exp_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lamina/base/simd_math-inl.h"
#include "lamina/ops/elementwise/elements-inl.h"
#include "lamina/ops/elementwise/scaled_exp_kernel.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {

void scaled_exp_forward(const Tensor& x, double factor, const Tensor& y) {
  map_elements(x, y, [=](auto d, auto v) HWY_ATTR { return hn::Mul(constant(d, factor), exp(d, v)); });
}
void scaled_exp_backward(const Tensor& x, const Tensor& dy, double factor, const Tensor& dx) {
  map_gradients(x, dy, dx,
                [=](auto d, auto v, auto g) HWY_ATTR { return hn::Mul(g, hn::Mul(constant(d, factor), exp(d, v))); });
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
