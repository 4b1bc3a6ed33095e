// Instantiates the row kernels of norm_rows-inl.h, which explains the strategy.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/ops/norm/rms_norm_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lamina/ops/norm/norm_rows-inl.h"
#include "lamina/ops/norm/rms_norm_kernel.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {

template <class T>
void forward(const RmsNormForward& args) {
  using A = Accumulate<T>;
  NormForwardRows<T> rows{};
  rows.x = args.x.data<T>();
  rows.residual = data_or_null<T>(args.residual);
  rows.scale = data_or_null<A>(args.scale);
  rows.h = data_or_null<T>(args.h);
  rows.y = args.y.data<T>();
  rows.r = args.r.data<A>();
  rows.groups = args.r.numel();
  rows.group = args.group_size;
  rows.width = args.x.dim(-1);
  rows.eps = args.eps;
  norm_forward_rows<false>(args.x.device().threads(), rows);
}

template <class T>
void backward(const RmsNormBackward& args) {
  using A = Accumulate<T>;
  const Device& device = args.x.device();
  NormBackwardRows<T> rows{};
  rows.x = args.x.data<T>();
  rows.dy = args.dy.data<T>();
  rows.dh = data_or_null<T>(args.dh);
  rows.scale = data_or_null<A>(args.scale);
  rows.r = args.r.data<A>();
  rows.dx = args.dx.data<T>();
  rows.width = args.x.dim(-1);
  rows.group = args.group_size;
  rows.rows = rows.width == 0 ? 0 : args.x.numel() / rows.width;
  rows.grain = backward_grain(rows.rows, rows.width);
  rows.stride = PartialSums<A>::stride(rows.width);
  const PartialSums<A> dweight(args.dweight, rows, 1280);
  rows.dscale = dweight.first();
  norm_backward_rows<false>(device.threads(), rows);
  dweight.add_up(device.threads());
}

void rms_norm_forward(const RmsNormForward& args) {
  visit_floating(args.x.dtype(), [&](auto tag) { forward<typename decltype(tag)::type>(args); });
}
void rms_norm_backward(const RmsNormBackward& args) {
  visit_floating(args.x.dtype(), [&](auto tag) { backward<typename decltype(tag)::type>(args); });
}

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lamina::ops {
HWY_EXPORT(rms_norm_forward);
HWY_EXPORT(rms_norm_backward);

namespace cpu {
void rms_norm_forward(const RmsNormForward& args) { HWY_DYNAMIC_DISPATCH(rms_norm_forward)(args); }
void rms_norm_backward(const RmsNormBackward& args) { HWY_DYNAMIC_DISPATCH(rms_norm_backward)(args); }
}  // namespace cpu
}  // namespace lamina::ops
#endif
