// One pass over the elements (elements-inl.h).
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/ops/elementwise/clamp_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lamina/base/simd_math-inl.h"
#include "lamina/ops/elementwise/clamp_kernel.h"
#include "lamina/ops/elementwise/elements-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {

void clamp_forward(const Tensor& x, double low, double high, const Tensor& y) {
  map_elements(x, y, [=](auto d, auto v) HWY_ATTR { return hn::Min(hn::Max(v, constant(d, low)), constant(d, high)); });
}
void clamp_backward(const Tensor& x, const Tensor& dy, double low, double high, const Tensor& dx) {
  map_gradients(x, dy, dx, [=](auto d, auto v, auto g) HWY_ATTR {
    return hn::IfThenElseZero(hn::And(hn::Ge(v, constant(d, low)), hn::Le(v, constant(d, high))), g);
  });
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
