// One pass over the elements (elements-inl.h).
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/ops/elementwise/soft_cap_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lamina/base/simd_math-inl.h"
#include "lamina/ops/elementwise/elements-inl.h"
#include "lamina/ops/elementwise/soft_cap_kernel.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {

void soft_cap_forward(const Tensor& x, double cap, const Tensor& y) {
  map_elements(x, y, [=](auto d, auto v) HWY_ATTR {
    return hn::Mul(constant(d, cap), tanh_pair(d, hn::Div(v, constant(d, cap))).value);
  });
}
void soft_cap_backward(const Tensor& x, const Tensor& dy, double cap, const Tensor& dx) {
  map_gradients(x, dy, dx, [=](auto d, auto v, auto g) HWY_ATTR {
    return hn::Mul(g, tanh_pair(d, hn::Div(v, constant(d, cap))).slope);
  });
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
