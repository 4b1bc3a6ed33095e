// Instantiates the row kernels of norm_rows-inl.h, which explains the strategy.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/ops/norm/layer_norm_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lamina/ops/norm/layer_norm_kernel.h"
#include "lamina/ops/norm/norm_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {

template <class T>
void forward(const LayerNormForward& args) {
  using A = Accumulate<T>;
  NormForwardRows<T> rows{};
  rows.x = args.x.data<T>();
  rows.residual = data_or_null<T>(args.residual);
  rows.scale = data_or_null<A>(args.scale);
  rows.bias = data_or_null<A>(args.bias);
  rows.h = data_or_null<T>(args.h);
  rows.y = args.y.data<T>();
  rows.mean = args.mean.data<A>();
  rows.r = args.r.data<A>();
  rows.groups = args.r.numel();
  rows.group = rows.width = args.x.dim(-1);
  rows.eps = args.eps;
  norm_forward_rows<true>(args.x.device().threads(), rows);
}

template <class T>
void backward(const LayerNormBackward& args) {
  using A = Accumulate<T>;
  const Device& device = args.x.device();
  NormBackwardRows<T> rows{};
  rows.x = args.x.data<T>();
  rows.dy = args.dy.data<T>();
  rows.dh = data_or_null<T>(args.dh);
  rows.scale = data_or_null<A>(args.scale);
  rows.mean = args.mean.data<A>();
  rows.r = args.r.data<A>();
  rows.dx = args.dx.data<T>();
  rows.group = rows.width = args.x.dim(-1);
  rows.rows = rows.width == 0 ? 0 : args.x.numel() / rows.width;
  rows.grain = backward_grain(rows.rows, rows.width);
  rows.stride = PartialSums<A>::stride(rows.width);
  const PartialSums<A> dweight(args.dweight, rows, 1280);
  const PartialSums<A> dbias(args.dbias, rows, 2560);
  rows.dscale = dweight.first();
  rows.dbias = dbias.first();
  norm_backward_rows<true>(device.threads(), rows);
  dweight.add_up(device.threads());
  dbias.add_up(device.threads());
}

void layer_norm_forward(const LayerNormForward& args) {
  visit_floating(args.x.dtype(), [&](auto tag) { forward<typename decltype(tag)::type>(args); });
}
void layer_norm_backward(const LayerNormBackward& args) {
  visit_floating(args.x.dtype(), [&](auto tag) { backward<typename decltype(tag)::type>(args); });
}

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lamina::ops {
HWY_EXPORT(layer_norm_forward);
HWY_EXPORT(layer_norm_backward);

namespace cpu {
void layer_norm_forward(const LayerNormForward& args) { HWY_DYNAMIC_DISPATCH(layer_norm_forward)(args); }
void layer_norm_backward(const LayerNormBackward& args) { HWY_DYNAMIC_DISPATCH(layer_norm_backward)(args); }
}  // namespace cpu
}  // namespace lamina::ops
#endif
