// Forward is one pass over the elements (elements.cuh). In backward a block takes one chunk of kXieluChunk elements,
// writes dx, and sums the chunk's gradients of the two learned scalars in a fixed order.
#include "lamina/ops/activation/xielu_kernel.h"
#include "lamina/ops/elementwise/elements.cuh"

namespace lamina::ops::cuda {
namespace {

using lamina::cuda::check_launch;
using lamina::cuda::device_data;
using lamina::cuda::DeviceType;
using lamina::cuda::from_float;
using lamina::cuda::stream_of;
using lamina::cuda::to_float;

constexpr const char* kOp = "xielu";
constexpr int kThreads = 256;

/// ln(1 + exp(x)), without overflow.
__device__ float softplus(float x) { return fmaxf(x, 0.0F) + log1pf(expf(-fabsf(x))); }

/// The function's parameters. alpha_p and alpha_n stay on the device; every thread computes p and n from them.
struct Xielu {
  const float* alpha_p;
  const float* alpha_n;
  float beta, eps;

  __device__ float p() const { return softplus(*alpha_p); }
  __device__ float n() const { return beta + softplus(*alpha_n); }
  /// expm1(min(x, eps)) − x
  __device__ float bend(float x) const { return expm1f(fminf(x, eps)) - x; }
  __device__ float operator()(float x) const { return fmaf(beta, x, x > 0.0F ? p() * x * x : n() * bend(x)); }
};

template <class Args>
Xielu xielu_of(const Args& args) {
  return {device_data<float>(args.alpha_p), device_data<float>(args.alpha_n), static_cast<float>(args.options.beta),
          static_cast<float>(args.options.eps)};
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    backward_kernel(const Xielu f, const T* x, const T* dy, int64_t count, T* dx, float* partial) {
  __shared__ float scratch[32];
  const float p = f.p();
  const float n = f.n();
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kXieluChunk;
  const int64_t end = min(begin + kXieluChunk, count);
  float sum_p = 0;
  float sum_n = 0;
  for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
    const float v = to_float(x[i]);
    const float g = to_float(dy[i]);
    const float bend = f.bend(v);
    // From v = eps on, min(v, eps) is constant, so the derivative of expm1(min(v, eps)) is 0.
    const float slope = v > 0.0F ? 2.0F * p * v : n * (v < f.eps ? bend + v : -1.0F);
    dx[i] = from_float<T>(g * (slope + f.beta));
    if (v > 0.0F) {
      sum_p = fmaf(g, v * v, sum_p);
    } else {
      sum_n = fmaf(g, bend, sum_n);
    }
  }
  sum_p = lamina::cuda::block_sum(sum_p, scratch);
  sum_n = lamina::cuda::block_sum(sum_n, scratch);
  if (threadIdx.x == 0) {
    partial[2 * blockIdx.x] = sum_p;
    partial[2 * blockIdx.x + 1] = sum_n;
  }
}

}  // namespace

void xielu_forward(const XieluForward& args) {
  lamina::cuda::map_elements(kOp, args.x, args.y, [&](auto /*tag*/) { return xielu_of(args); });
}

void xielu_backward(const XieluBackward& args) {
  const int64_t count = args.x.numel();
  if (count == 0) return;
  const auto blocks = static_cast<unsigned>((count + kXieluChunk - 1) / kXieluChunk);
  lamina::cuda::visit_floating(kOp, args.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    backward_kernel<DeviceType<T>><<<blocks, kThreads, 0, stream_of(args.x.device())>>>(
        xielu_of(args), device_data<T>(args.x), device_data<T>(args.dy), count, device_data<T>(args.dx),
        device_data<float>(args.partial));
    check_launch(kOp);
  });
}

}  // namespace lamina::ops::cuda
