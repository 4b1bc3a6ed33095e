// Backward of the causal convolution. For the common kernel size of four it is one pass. A thread takes a strip of
// positions. It keeps windows of x and of g = dy · act'(p), and the sums of dweight, in registers. x and dy are read
// once, dx is written once. A block adds the sums of its strips in order; a second kernel adds the blocks' sums.
//
// Other kernel sizes take three passes: g into a buffer, dx as a convolution of g, dweight as sums over ranges of
// positions.
#include <algorithm>

#include "lamina/ops/ssm/causal_conv1d.cuh"
#include "lamina/ops/ssm/causal_conv1d_kernel.h"
#include "lamina/ops/ssm/parts_cuda.h"

namespace lamina::ops::cuda {
namespace {

constexpr int kTaps = 4;  // kernel size of the one-pass kernel
constexpr int kPositionsPerThread = 64;
constexpr int kStripsPerBlock = 8;  // strips whose sums are added within a block

template <class T>
struct InputGradientArgs {
  const T *x, *state, *dy;
  const float *taps, *bias;
  T *dx, *dstate;
  float* parts;  // [batch · blocks of strips, kTaps + 1, channels]
  int64_t seq, channels;
  bool silu;
};

/// The one-pass kernel. A thread has V channels and one strip; the strips of a block are consecutive.
template <int V, class T>
__global__ void __launch_bounds__(kWarp* kStripsPerBlock) input_gradient_kernel(InputGradientArgs<T> a) {
  __shared__ float partials[kTaps + 1][V][kStripsPerBlock][kWarp];
  const int64_t channel = (blockIdx.x * int64_t{kWarp} + threadIdx.x) * V;
  const int64_t batch = blockIdx.z;
  const int64_t begin = (blockIdx.y * int64_t{kStripsPerBlock} + threadIdx.y) * kPositionsPerThread;
  float dtaps[kTaps][V] = {};
  float dbias[V] = {};
  if (channel < a.channels && begin < a.seq) {
    const int64_t end = min(begin + kPositionsPerThread, a.seq);
    const int64_t entry = batch * a.seq * a.channels + channel;
    const int64_t before = batch * (kTaps - 1) * a.channels + channel;
    const ConvRows<T> rows{a.x + entry, a.state != nullptr ? a.state + before : nullptr, a.seq, a.channels, kTaps};
    float taps[kTaps][V];
    float x[kTaps][V] = {};  // positions t − 3 … t
    float g[kTaps][V] = {};
    float bias[V];
#pragma unroll
    for (int v = 0; v < V; ++v) bias[v] = a.bias != nullptr ? a.bias[channel + v] : 0.0F;
#pragma unroll
    for (int j = 0; j < kTaps; ++j) load_stretch<V>(a.taps + j * a.channels + channel, taps[j]);
#pragma unroll
    for (int j = 1; j < kTaps; ++j) {
      const T* row = rows.at(begin - kTaps + j);
      if (row != nullptr) load_stretch<V>(row, x[j]);
    }
#pragma unroll 4
    for (int64_t t = begin; t < end + kTaps - 1; ++t) {
#pragma unroll
      for (int j = 0; j + 1 < kTaps; ++j) {
#pragma unroll
        for (int v = 0; v < V; ++v) {
          x[j][v] = x[j + 1][v];
          g[j][v] = g[j + 1][v];
        }
      }
      const bool inside = t < a.seq;
      float now[V] = {};
      float dy[V] = {};
      if (inside) {
        load_stretch<V>(a.x + entry + t * a.channels, now);
        load_stretch<V>(a.dy + entry + t * a.channels, dy);
      }
#pragma unroll
      for (int v = 0; v < V; ++v) {
        x[kTaps - 1][v] = now[v];
        g[kTaps - 1][v] = dy[v];
        if (a.silu && inside) {
          float p = bias[v];
#pragma unroll
          for (int j = 0; j < kTaps; ++j) p = fmaf(taps[j][v], x[j][v], p);
          g[kTaps - 1][v] = dy[v] * silu_slope(p);
        }
        if (t < end) {
          dbias[v] += g[kTaps - 1][v];
#pragma unroll
          for (int j = 0; j < kTaps; ++j) dtaps[j][v] = fmaf(g[kTaps - 1][v], x[j][v], dtaps[j][v]);
        }
      }
      // The window now holds all g that dx[t − 3] needs.
      const int64_t target = t - kTaps + 1;
      if (target < begin && (target >= 0 || a.dstate == nullptr || begin != 0)) continue;
      float dx[V];
#pragma unroll
      for (int v = 0; v < V; ++v) {
        dx[v] = 0;
#pragma unroll
        for (int j = 0; j < kTaps; ++j) dx[v] = fmaf(taps[j][v], g[kTaps - 1 - j][v], dx[v]);
      }
      store_stretch<V>(dx, target >= 0 ? a.dx + entry + target * a.channels : a.dstate + before + t * a.channels);
    }
  }
#pragma unroll
  for (int v = 0; v < V; ++v) {
#pragma unroll
    for (int j = 0; j < kTaps; ++j) partials[j][v][threadIdx.y][threadIdx.x] = dtaps[j][v];
    partials[kTaps][v][threadIdx.y][threadIdx.x] = dbias[v];
  }
  __syncthreads();
  const int64_t part = batch * gridDim.y + blockIdx.y;
  for (int item = threadIdx.y; item < (kTaps + 1) * V; item += kStripsPerBlock) {
    const int j = item / V;
    const int v = item % V;
    if (channel >= a.channels) break;
    float sum = 0;
#pragma unroll
    for (int strip = 0; strip < kStripsPerBlock; ++strip) sum += partials[j][v][strip][threadIdx.x];
    a.parts[(part * (kTaps + 1) + j) * a.channels + channel + v] = sum;
  }
}

template <class T>
void fused_backward(const CausalConv1dBackward& args) {
  using D = DeviceType<T>;
  const CausalConv1dForward& f = args.forward;
  const int64_t batch = f.x.dim(0);
  const int64_t seq = f.x.dim(1);
  const int64_t channels = f.x.dim(2);
  const int64_t blocks = (seq + kPositionsPerThread * kStripsPerBlock - 1) / (kPositionsPerThread * kStripsPerBlock);
  const Tensor parts = Tensor::empty({batch * blocks, kTaps + 1, channels}, DType::f32, f.x.device());
  const InputGradientArgs<D> kernel_args{device_data<T>(f.x),
                                         device_data<T>(f.state),
                                         device_data<T>(args.dy),
                                         device_data<float>(f.taps),
                                         device_data<float>(f.bias),
                                         device_data<T>(args.dx),
                                         device_data<T>(args.dstate),
                                         parts.data<float>(),
                                         seq,
                                         channels,
                                         f.silu};
  const bool two = fits_stretches<2>(channels, kernel_args.x, kernel_args.state, kernel_args.dy, kernel_args.taps,
                                     kernel_args.bias, kernel_args.dx, kernel_args.dstate);
  const int64_t lanes = two ? channels / 2 : channels;
  const dim3 block(kWarp, kStripsPerBlock);
  const dim3 grid(static_cast<unsigned>((lanes + kWarp - 1) / kWarp), static_cast<unsigned>(blocks),
                  static_cast<unsigned>(batch));
  const cudaStream_t stream = stream_of(f.x.device());
  if (two) {
    input_gradient_kernel<2><<<grid, block, 0, stream>>>(kernel_args);
  } else {
    input_gradient_kernel<1><<<grid, block, 0, stream>>>(kernel_args);
  }
  check_launch("causal_conv1d");
  const int64_t stride = (kTaps + 1) * channels;
  add_parts("causal_conv1d", parts.data<float>(), batch * blocks, stride, args.dtaps);
  add_parts("causal_conv1d", parts.data<float>() + kTaps * channels, batch * blocks, stride, args.dbias);
}

/// Partial sums over a range of positions of all batch entries: parts[range][j][channel] = Σ g[t] · x[t − kernel + 1 +
/// j] for tap j, and Σ g[t] for j = kernel (the bias).
template <class T, class G>
__global__ void tap_sums_kernel(const T* x, const T* state, const G* g, float* parts, int64_t batch, int64_t seq,
                                int64_t channels, int64_t kernel, int64_t per_range) {
  const int64_t item = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (item >= (kernel + 1) * channels) return;
  const int64_t j = item / channels;
  const int64_t channel = item % channels;
  const int64_t begin = blockIdx.y * per_range;
  const int64_t end = min(begin + per_range, batch * seq);
  float sum = 0;
  for (int64_t row = begin; row < end; ++row) {
    const float value = to_float(g[row * channels + channel]);
    if (j == kernel) {
      sum += value;
      continue;
    }
    const int64_t entry = row / seq;
    const ConvRows<T> rows{x + entry * seq * channels + channel,
                           state != nullptr ? state + entry * (kernel - 1) * channels + channel : nullptr, seq,
                           channels, kernel};
    const T* from = rows.at(row - entry * seq - kernel + 1 + j);
    if (from != nullptr) sum = fmaf(value, to_float(*from), sum);
  }
  parts[blockIdx.y * (kernel + 1) * channels + item] = sum;
}

/// Computes dx, dstate, dweight and dbias from g, for any kernel size.
template <class T, class G>
void backward_from_g(const CausalConv1dBackward& args, const G* g) {
  using D = DeviceType<T>;
  const CausalConv1dForward& f = args.forward;
  const int64_t batch = f.x.dim(0);
  const int64_t seq = f.x.dim(1);
  const int64_t channels = f.x.dim(2);
  const int64_t kernel = f.taps.dim(0);
  Convolve<G, D, D> pull{
      g, nullptr, device_data<float>(f.taps), nullptr, nullptr, device_data<T>(args.dx), seq, channels, kernel, 0, seq,
      0, true,    ConvFinish::plain};
  convolve(f.x.device(), batch, pull);
  if (args.dstate.defined()) {
    pull.y = device_data<T>(args.dstate);
    pull.first = 1 - kernel;
    pull.count = kernel - 1;
    convolve(f.x.device(), batch, pull);
  }
  if (!args.dtaps.defined() && !args.dbias.defined()) return;
  const int64_t per_range = std::max<int64_t>(64, (batch * seq + 63) / 64);
  const int64_t ranges = (batch * seq + per_range - 1) / per_range;
  const int64_t stride = (kernel + 1) * channels;
  const Tensor parts = Tensor::empty({ranges, stride}, DType::f32, f.x.device());
  constexpr int kThreads = 128;
  const dim3 grid(static_cast<unsigned>(lamina::cuda::blocks_for(stride, kThreads)), static_cast<unsigned>(ranges));
  tap_sums_kernel<<<grid, kThreads, 0, stream_of(f.x.device())>>>(
      device_data<T>(f.x), device_data<T>(f.state), g, parts.data<float>(), batch, seq, channels, kernel, per_range);
  check_launch("causal_conv1d");
  add_parts("causal_conv1d", parts.data<float>(), ranges, stride, args.dtaps);
  add_parts("causal_conv1d", parts.data<float>() + kernel * channels, ranges, stride, args.dbias);
}

template <class T>
void backward(const CausalConv1dBackward& args) {
  using D = DeviceType<T>;
  const CausalConv1dForward& f = args.forward;
  if (f.x.numel() == 0) {
    for (const Tensor& grad : {args.dtaps, args.dbias, args.dstate}) clear("causal_conv1d", grad);
    return;
  }
  if (f.taps.dim(0) == kTaps) return fused_backward<T>(args);
  if (!f.silu) return backward_from_g<T>(args, static_cast<const D*>(device_data<T>(args.dy)));
  const Tensor g = Tensor::empty(f.x.shape(), DType::f32, f.x.device());
  const auto from = forward_args<T>(f, ConvFinish::silu_slope);
  const Convolve<D, float, D> slope{from.x,
                                    from.state,
                                    from.taps,
                                    from.bias,
                                    device_data<T>(args.dy),
                                    g.data<float>(),
                                    from.seq,
                                    from.channels,
                                    from.kernel,
                                    from.first,
                                    from.count,
                                    from.shift,
                                    false,
                                    ConvFinish::silu_slope};
  convolve(f.x.device(), f.x.dim(0), slope);
  backward_from_g<T>(args, static_cast<const float*>(g.data<float>()));
}

}  // namespace

void causal_conv1d_backward(const CausalConv1dBackward& args) {
  lamina::cuda::visit_floating("causal_conv1d", args.dy.dtype(),
                               [&](auto tag) { backward<typename decltype(tag)::type>(args); });
}

}  // namespace lamina::ops::cuda
