// Instantiates the kernels of norm_forward.cuh and norm_backward.cuh; norm_rows.cuh explains the strategy.
#include "lamina/ops/norm/norm_backward.cuh"
#include "lamina/ops/norm/norm_forward.cuh"
#include "lamina/ops/norm/rms_norm_kernel.h"

namespace lamina::ops::cuda {

using lamina::cuda::device_data;
using lamina::cuda::DeviceType;

void rms_norm_forward(const RmsNormForward& args) {
  lamina::cuda::visit_floating("rms_norm", args.x.dtype(), [&](auto tag) {
    using E = typename decltype(tag)::type;
    norm::ForwardRows<DeviceType<E>> rows{};
    rows.x = device_data<E>(args.x);
    rows.residual = device_data<E>(args.residual);
    rows.scale = norm::parameters<E>(args.scale);
    rows.h = device_data<E>(args.h);
    rows.y = device_data<E>(args.y);
    rows.r = device_data<float>(args.r);
    rows.groups = args.r.numel();
    rows.group = args.group_size;
    rows.width = args.x.dim(-1);
    rows.eps = static_cast<float>(args.eps);
    norm::run_forward<false>("rms_norm", args.x.device(), rows);
  });
}

void rms_norm_backward(const RmsNormBackward& args) {
  lamina::cuda::visit_floating("rms_norm", args.x.dtype(), [&](auto tag) {
    using E = typename decltype(tag)::type;
    norm::BackwardRows<DeviceType<E>> rows{};
    rows.x = device_data<E>(args.x);
    rows.dy = device_data<E>(args.dy);
    rows.dh = device_data<E>(args.dh);
    rows.scale = norm::parameters<E>(args.scale);
    rows.r = device_data<float>(args.r);
    rows.dx = device_data<E>(args.dx);
    rows.width = args.x.dim(-1);
    rows.group = args.group_size;
    rows.rows = rows.width == 0 ? 0 : args.x.numel() / rows.width;
    norm::run_backward<false>("rms_norm", args.x.device(), rows, {args.dweight, {}});
  });
}

}  // namespace lamina::ops::cuda
