// Forward is the convolution of causal_conv1d.cuh. The kernels that update the state and compute one position use one
// thread per channel.
#include "lamina/ops/ssm/causal_conv1d.cuh"
#include "lamina/ops/ssm/causal_conv1d_kernel.h"

namespace lamina::ops::cuda {
namespace {

template <class T>
__global__ void state_kernel(const T* x, const T* before, T* state, int64_t seq, int64_t channels, int64_t past,
                             int64_t count) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i >= count) return;
  const int64_t row = i / past;
  const int64_t t = seq - past + i % past;
  T value = from_float<T>(0.0F);
  if (t >= 0) {
    value = x[(row / channels * seq + t) * channels + row % channels];
  } else if (before != nullptr) {
    value = before[row * past + past + t];
  }
  state[i] = value;
}

template <class T>
__global__ void step_kernel(const T* x, T* state, const float* weight, const float* bias, T* y, int64_t channels,
                            int64_t kernel, bool with_silu, int64_t count) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i >= count) return;
  const int64_t channel = i % channels;
  const float* w = weight + channel * kernel;
  T* past = state + i * (kernel - 1);
  const T now = x[i];
  float sum = bias != nullptr ? bias[channel] : 0.0F;
  for (int64_t j = 0; j + 1 < kernel; ++j) {
    const T value = past[j];
    sum = fmaf(w[j], to_float(value), sum);
    if (j > 0) past[j - 1] = value;
  }
  if (kernel > 1) past[kernel - 2] = now;
  sum = fmaf(w[kernel - 1], to_float(now), sum);
  y[i] = from_float<T>(with_silu ? silu(sum) : sum);
}

constexpr int kThreads = 128;

}  // namespace

void causal_conv1d_forward(const CausalConv1dForward& args) {
  lamina::cuda::visit_floating("causal_conv1d", args.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    convolve(args.x.device(), args.x.dim(0), forward_args<T>(args, args.silu ? ConvFinish::silu : ConvFinish::plain));
  });
}

void causal_conv1d_state(const Tensor& x, const Tensor& initial_state, const Tensor& state) {
  if (state.numel() == 0) return;
  lamina::cuda::visit_floating("causal_conv1d_state", x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const int blocks = lamina::cuda::blocks_for(state.numel(), kThreads);
    state_kernel<<<blocks, kThreads, 0, stream_of(x.device())>>>(
        static_cast<const DeviceType<T>*>(device_data<T>(x)),
        static_cast<const DeviceType<T>*>(device_data<T>(initial_state)), device_data<T>(state), x.dim(1), x.dim(2),
        state.dim(2), state.numel());
    check_launch("causal_conv1d_state");
  });
}

void causal_conv1d_step(const CausalConv1dStep& args) {
  if (args.x.numel() == 0) return;
  lamina::cuda::visit_floating("causal_conv1d_step", args.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const int blocks = lamina::cuda::blocks_for(args.x.numel(), kThreads);
    step_kernel<<<blocks, kThreads, 0, stream_of(args.x.device())>>>(
        static_cast<const DeviceType<T>*>(device_data<T>(args.x)), device_data<T>(args.state),
        static_cast<const float*>(device_data<float>(args.weight)),
        static_cast<const float*>(device_data<float>(args.bias)), device_data<T>(args.y), args.x.dim(1),
        args.weight.dim(1), args.silu, args.x.numel());
    check_launch("causal_conv1d_step");
  });
}

}  // namespace lamina::ops::cuda
