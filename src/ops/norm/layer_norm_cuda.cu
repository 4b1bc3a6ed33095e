// Instantiates the kernels of norm_forward.cuh and norm_backward.cuh; norm_rows.cuh explains the strategy.
#include "lamina/ops/norm/layer_norm_kernel.h"
#include "lamina/ops/norm/norm_backward.cuh"
#include "lamina/ops/norm/norm_forward.cuh"

namespace lamina::ops::cuda {

using lamina::cuda::device_data;
using lamina::cuda::DeviceType;

void layer_norm_forward(const LayerNormForward& args) {
  lamina::cuda::visit_floating("layer_norm", args.x.dtype(), [&](auto tag) {
    using E = typename decltype(tag)::type;
    norm::ForwardRows<DeviceType<E>> rows{};
    rows.x = device_data<E>(args.x);
    rows.residual = device_data<E>(args.residual);
    rows.scale = norm::parameters<E>(args.scale);
    rows.bias = norm::parameters<E>(args.bias);
    rows.h = device_data<E>(args.h);
    rows.y = device_data<E>(args.y);
    rows.mean = device_data<float>(args.mean);
    rows.r = device_data<float>(args.r);
    rows.groups = args.r.numel();
    rows.group = rows.width = args.x.dim(-1);
    rows.eps = static_cast<float>(args.eps);
    norm::run_forward<true>("layer_norm", args.x.device(), rows);
  });
}

void layer_norm_backward(const LayerNormBackward& args) {
  lamina::cuda::visit_floating("layer_norm", args.x.dtype(), [&](auto tag) {
    using E = typename decltype(tag)::type;
    norm::BackwardRows<DeviceType<E>> rows{};
    rows.x = device_data<E>(args.x);
    rows.dy = device_data<E>(args.dy);
    rows.dh = device_data<E>(args.dh);
    rows.scale = norm::parameters<E>(args.scale);
    rows.mean = device_data<float>(args.mean);
    rows.r = device_data<float>(args.r);
    rows.dx = device_data<E>(args.dx);
    rows.group = rows.width = args.x.dim(-1);
    rows.rows = rows.width == 0 ? 0 : args.x.numel() / rows.width;
    norm::run_backward<true>("layer_norm", args.x.device(), rows, {args.dweight, args.dbias});
  });
}

}  // namespace lamina::ops::cuda
