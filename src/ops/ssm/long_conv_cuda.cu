// Direct convolution with f32 FMAs. The lanes of a warp are channels. A thread keeps 16 results of one channel and a
// sliding window of 31 inputs in registers, which advances by 16 taps at a time: 32 coalesced loads feed 256 FMAs. One
// routine computes all three products: out[r] = Σ_m p[m] · q[r + m], where q runs forwards or backwards in time. The
// kernel is first transposed to [taps, channels]; its gradient is transposed back at the end. Each thread sums its part
// of that gradient over the batch.
#include <algorithm>

#include "lamina/ops/ssm/long_conv_kernel.h"
#include "lamina/ops/ssm/parts_cuda.h"
#include "lamina/tensor/cuda/kernel.cuh"

namespace lamina::ops::cuda {
namespace {

using lamina::cuda::check_launch;
using lamina::cuda::device_data;
using lamina::cuda::DeviceType;
using lamina::cuda::from_float;
using lamina::cuda::kWarp;
using lamina::cuda::stream_of;
using lamina::cuda::to_float;

constexpr const char* kOp = "long_conv";
constexpr int kOut = 16;   // results per thread
constexpr int kWarps = 8;  // warps per block

/// One channel of a matrix [rows, channels]; reads zero outside.
template <class T>
struct Column {
  const T* first;
  int64_t rows, channels;
  __device__ float at(int64_t t) const { return t >= 0 && t < rows ? to_float(first[t * channels]) : 0.0F; }
};

/// out[r] += Σ_{begin <= m < end} p[m] · q[origin + sign · (r + m)]
template <class P, class Q>
__device__ void correlate(const Column<P>& p, const Column<Q>& q, int64_t begin, int64_t end, int64_t origin, int sign,
                          float (&out)[kOut]) {
  float window[2 * kOut - 1];  // q at r + m, for the current 16 values of m
#pragma unroll
  for (int i = 0; i < kOut - 1; ++i) window[kOut + i] = q.at(origin + sign * (begin + i));
  for (int64_t m0 = begin; m0 < end; m0 += kOut) {
#pragma unroll
    for (int i = 0; i < kOut - 1; ++i) window[i] = window[kOut + i];
#pragma unroll
    for (int i = 0; i < kOut; ++i) window[kOut - 1 + i] = q.at(origin + sign * (m0 + kOut - 1 + i));
#pragma unroll
    for (int i = 0; i < kOut; ++i) {
      if (m0 + i >= end) break;
      const float factor = p.at(m0 + i);
#pragma unroll
      for (int r = 0; r < kOut; ++r) out[r] = fmaf(factor, window[r + i], out[r]);
    }
  }
}

/// Forward computes y[t0 + kOut − 1 − r], backward du[t0 + r], for r in [0, kOut).
template <class T, bool kBackward>
__global__ void __launch_bounds__(kWarp* kWarps) convolve_kernel(const T* in, const float* kernel, const float* d,
                                                                 T* out, int64_t seq, int64_t channels, int64_t taps) {
  const int64_t channel = blockIdx.x * int64_t{kWarp} + threadIdx.x;
  const int64_t t0 = (blockIdx.y * int64_t{kWarps} + threadIdx.y) * kOut;
  if (channel >= channels || t0 >= seq) return;
  const int64_t entry = blockIdx.z * seq * channels + channel;
  const Column<T> column{in + entry, seq, channels};
  const Column<float> factors{kernel + channel, taps, channels};
  float sums[kOut] = {};
  if (kBackward) {
    correlate(factors, column, 0, min(taps, seq - t0), t0, 1, sums);
  } else {
    correlate(factors, column, 0, min(taps, t0 + kOut), t0 + kOut - 1, -1, sums);
  }
#pragma unroll
  for (int r = 0; r < kOut; ++r) {
    const int64_t t = kBackward ? t0 + r : t0 + kOut - 1 - r;
    if (t >= seq) continue;
    const float value = d != nullptr ? fmaf(d[channel], column.at(t), sums[r]) : sums[r];
    out[entry + t * channels] = from_float<T>(value);
  }
}

/// dK[j0 + kOut − 1 − r] = Σ_batch Σ_t dy[t] · u[t − j], where j is the index on the left.
template <class T>
__global__ void __launch_bounds__(kWarp* kWarps) kernel_gradient(const T* u, const T* dy, float* dkernel, int64_t batch,
                                                                 int64_t seq, int64_t channels, int64_t taps) {
  const int64_t channel = blockIdx.x * int64_t{kWarp} + threadIdx.x;
  const int64_t j0 = (blockIdx.y * int64_t{kWarps} + threadIdx.y) * kOut;
  if (channel >= channels || j0 >= taps) return;
  float total[kOut] = {};
  for (int64_t entry = 0; entry < batch && j0 < seq; ++entry) {
    const int64_t first = entry * seq * channels + channel;
    float sums[kOut] = {};
    correlate(Column<T>{dy + first, seq, channels}, Column<T>{u + first, seq, channels}, j0, seq, -j0 - kOut + 1, 1,
              sums);
#pragma unroll
    for (int r = 0; r < kOut; ++r) total[r] += sums[r];
  }
#pragma unroll
  for (int r = 0; r < kOut; ++r) {
    const int64_t j = j0 + kOut - 1 - r;
    if (j < taps) dkernel[j * channels + channel] = total[r];
  }
}

/// Partial sums of dd = Σ dy · u over a range of rows.
template <class T>
__global__ void __launch_bounds__(kWarp* kWarps)
    skip_gradient(const T* u, const T* dy, float* parts, int64_t rows, int64_t channels, int64_t per_part) {
  __shared__ float shares[kWarps][kWarp];
  const int64_t channel = blockIdx.x * int64_t{kWarp} + threadIdx.x;
  const int64_t begin = blockIdx.y * per_part;
  const int64_t end = min(begin + per_part, rows);
  float sum = 0;
  for (int64_t row = begin + threadIdx.y; row < end && channel < channels; row += kWarps) {
    sum = fmaf(to_float(dy[row * channels + channel]), to_float(u[row * channels + channel]), sum);
  }
  shares[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || channel >= channels) return;
  float total = 0;
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) total += shares[warp][threadIdx.x];
  parts[blockIdx.y * channels + channel] = total;
}

dim3 grid_of(int64_t channels, int64_t results, int64_t batch) {
  return dim3(static_cast<unsigned>((channels + kWarp - 1) / kWarp),
              static_cast<unsigned>((results + kOut * kWarps - 1) / (kOut * kWarps)), static_cast<unsigned>(batch));
}

/// Transposes [channels, taps] to [taps, channels].
Tensor transposed(const Tensor& kernel) { return kernel.transpose(0, 1).contiguous(); }

template <class T, bool kBackward>
void convolve(const LongConvForward& f, const Tensor& in, const Tensor& out) {
  using D = DeviceType<T>;
  const Tensor kernel = transposed(f.kernel);
  convolve_kernel<D, kBackward>
      <<<grid_of(in.dim(2), in.dim(1), in.dim(0)), dim3(kWarp, kWarps), 0, stream_of(in.device())>>>(
          device_data<T>(in), kernel.data<float>(), device_data<float>(f.d), device_data<T>(out), in.dim(1), in.dim(2),
          kernel.dim(0));
  check_launch(kOp);
}

template <class T>
void find_kernel_gradient(const LongConvBackward& args) {
  using D = DeviceType<T>;
  const Tensor& u = args.forward.u;
  const int64_t taps = args.dkernel.dim(1);
  const Tensor gradient = Tensor::empty({taps, u.dim(2)}, DType::f32, u.device());
  kernel_gradient<D><<<grid_of(u.dim(2), taps, 1), dim3(kWarp, kWarps), 0, stream_of(u.device())>>>(
      device_data<T>(u), device_data<T>(args.dy), gradient.data<float>(), u.dim(0), u.dim(1), u.dim(2), taps);
  check_launch(kOp);
  Tensor target = args.dkernel;
  target.copy_(gradient.transpose(0, 1));
}

template <class T>
void find_skip_gradient(const LongConvBackward& args) {
  using D = DeviceType<T>;
  const Tensor& u = args.forward.u;
  const int64_t rows = u.dim(0) * u.dim(1);
  const int64_t per_part = std::max<int64_t>(64, (rows + 63) / 64);
  const int64_t parts = (rows + per_part - 1) / per_part;
  const Tensor shares = Tensor::empty({parts, u.dim(2)}, DType::f32, u.device());
  const dim3 grid(static_cast<unsigned>((u.dim(2) + kWarp - 1) / kWarp), static_cast<unsigned>(parts));
  skip_gradient<D><<<grid, dim3(kWarp, kWarps), 0, stream_of(u.device())>>>(
      device_data<T>(u), device_data<T>(args.dy), shares.data<float>(), rows, u.dim(2), per_part);
  check_launch(kOp);
  add_parts(kOp, shares.data<float>(), parts, u.dim(2), args.dd);
}

}  // namespace

void long_conv_forward(const LongConvForward& args) {
  if (args.u.numel() == 0) return;
  lamina::cuda::visit_floating(kOp, args.u.dtype(),
                               [&](auto tag) { convolve<typename decltype(tag)::type, false>(args, args.u, args.y); });
}

void long_conv_backward(const LongConvBackward& args) {
  if (args.forward.u.numel() == 0) {
    clear(kOp, args.dkernel);
    clear(kOp, args.dd);
    return;
  }
  lamina::cuda::visit_floating(kOp, args.dy.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (args.du.defined()) convolve<T, true>(args.forward, args.dy, args.du);
    if (args.dkernel.defined() && args.dkernel.numel() > 0) find_kernel_gradient<T>(args);
    if (args.dd.defined()) find_skip_gradient<T>(args);
  });
}

}  // namespace lamina::ops::cuda
