// All arithmetic is in f64, which is fast enough here and keeps powers accurate over a long kernel. Forward: a thread
// computes 16 positions of one channel, 128 apart. For each mode it starts from one exponential and advances by
// multiplying with z^128. Backward: a block handles one channel; each warp loops over modes, with its lanes along the
// kernel.
#include "lamina/ops/ssm/s4d_kernel.h"
#include "lamina/ops/ssm/s4d_modes.cuh"

namespace lamina::ops::cuda {
namespace {

using lamina::cuda::check_launch;
using lamina::cuda::device_data;
using lamina::cuda::DeviceType;
using lamina::cuda::stream_of;

constexpr const char* kOp = "s4d_kernel";
constexpr int kThreads = 128;
constexpr int kRun = 16;  // positions per thread
constexpr int kModes = 32;

template <class T>
__global__ void __launch_bounds__(kThreads) forward_kernel(S4dPointers parameters, int64_t length, T* kernel) {
  __shared__ Complex rates[kModes];    // w = Δ a
  __shared__ Complex gains[kModes];    // 2 c'
  __shared__ Complex strides[kModes];  // z^kThreads
  const int64_t channel = blockIdx.x;
  const int64_t first = blockIdx.y * int64_t{kThreads * kRun} + threadIdx.x;
  double sums[kRun] = {};
  for (int64_t base = 0; base < parameters.n; base += kModes) {
    const int count = static_cast<int>(min(int64_t{kModes}, parameters.n - base));
    __syncthreads();
    if (threadIdx.x < count) {
      const S4dDeviceMode mode(parameters, channel * parameters.n + base + threadIdx.x);
      rates[threadIdx.x] = mode.w;
      gains[threadIdx.x] = 2.0 * mode.gain();
      strides[threadIdx.x] = mode.power(kThreads);
    }
    __syncthreads();
    if (first >= length) continue;
    for (int i = 0; i < count; ++i) {
      Complex power = gains[i] * complex_exp(static_cast<double>(first) * rates[i]);
      const Complex stride = strides[i];
#pragma unroll
      for (int j = 0; j < kRun; ++j) {
        if (first + j * kThreads >= length) break;
        sums[j] += power.re;
        power = power * stride;
      }
    }
  }
#pragma unroll
  for (int j = 0; j < kRun; ++j) {
    const int64_t l = first + j * kThreads;
    if (l < length) kernel[channel * length + l] = lamina::cuda::from_float<T>(static_cast<float>(sums[j]));
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    backward_kernel(S4dPointers parameters, int64_t length, const T* dkernel, S4dPointers grads) {
  constexpr int kWarps = kThreads / lamina::cuda::kWarp;
  __shared__ double shares[kWarps];
  const int64_t channel = blockIdx.x;
  const int warp = threadIdx.x / lamina::cuda::kWarp;
  const int lane = threadIdx.x % lamina::cuda::kWarp;
  const T* dk = dkernel + channel * length;
  double dlog_dt = 0;
  for (int64_t i = warp; i < parameters.n; i += kWarps) {
    const S4dDeviceMode mode(parameters, channel * parameters.n + i);
    const Complex stride = mode.power(lamina::cuda::kWarp);
    Complex power = mode.power(lane);
    Complex plain;        // Σ dK z^l
    Complex by_position;  // Σ l dK z^l
    for (int64_t l = lane; l < length; l += lamina::cuda::kWarp) {
      const double g = static_cast<double>(lamina::cuda::to_float(dk[l]));
      plain = plain + g * power;
      by_position = by_position + (g * static_cast<double>(l)) * power;
      power = power * stride;
    }
    plain = {warp_sum(plain.re), warp_sum(plain.im)};
    by_position = {warp_sum(by_position.re), warp_sum(by_position.im)};
    if (lane == 0) {
      dlog_dt +=
          mode.finish(2.0 * conj(plain), 2.0 * conj(mode.gain() * by_position), channel * parameters.n + i, grads);
    }
  }
  if (lane == 0) shares[warp] = dlog_dt;
  __syncthreads();
  if (threadIdx.x != 0) return;
  double sum = 0;
  for (int i = 0; i < kWarps; ++i) sum += shares[i];
  grads.log_dt[channel] = sum;
}

}  // namespace

void s4d_kernel_forward(const S4dKernelForward& args) {
  if (args.kernel.numel() == 0) return;
  const int64_t length = args.kernel.dim(1);
  const dim3 grid(static_cast<unsigned>(args.kernel.dim(0)),
                  static_cast<unsigned>((length + kThreads * kRun - 1) / (kThreads * kRun)));
  lamina::cuda::visit_floating(kOp, args.kernel.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    forward_kernel<DeviceType<T>><<<grid, kThreads, 0, stream_of(args.kernel.device())>>>(
        S4dPointers(args.parameters), length, device_data<T>(args.kernel));
    check_launch(kOp);
  });
}

void s4d_kernel_backward(const S4dKernelBackward& args) {
  const int64_t channels = args.dkernel.dim(0);
  if (channels == 0) return;
  lamina::cuda::visit_floating(kOp, args.dkernel.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    backward_kernel<DeviceType<T>><<<static_cast<unsigned>(channels), kThreads, 0, stream_of(args.dkernel.device())>>>(
        S4dPointers(args.parameters), args.dkernel.dim(1), device_data<T>(args.dkernel), S4dPointers(args.grads));
    check_launch(kOp);
  });
}

}  // namespace lamina::ops::cuda
