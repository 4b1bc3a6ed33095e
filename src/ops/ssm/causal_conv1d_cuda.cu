// Lanes run over channels, which are neighbours in memory, four of them a thread where they divide by four; a block is
// 32 lanes times 8 strips of eight positions, so that what strips have in common comes from the first-level cache and
// x is read from memory once. A thread keeps its strip's sums while the rows pass by, with a window of taps that moves
// along.
// Backward, for the usual four taps, is one walk of a thread through a strip of positions: windows of x, of g = dy ·
// act'(p) and the sums of dweight stay in registers, x and dy are read once and dx is written once. The strips of a
// block are added in order and leave one partial sum, which a second kernel adds. Other widths take three passes: g
// into a buffer, dx as a convolution of it, dweight as sums over ranges of positions.
#include <algorithm>

#include "lamina/ops/ssm/causal_conv1d.h"
#include "lamina/ops/ssm/parts_cuda.h"
#include "lamina/ops/ssm/scan.cuh"

namespace lamina::ops::cuda {
namespace {

using lamina::cuda::check_launch;
using lamina::cuda::device_data;
using lamina::cuda::DeviceType;
using lamina::cuda::from_float;
using lamina::cuda::kWarp;
using lamina::cuda::stream_of;
using lamina::cuda::to_float;

constexpr int kStrip = 8;   // positions of a thread
constexpr int kStrips = 8;  // of a block

/// V neighbouring elements as floats.
template <int V, class T>
__device__ void load(const T* from, float (&to)[V]) {
  struct alignas(sizeof(T) * V) Pack {
    T values[V];
  };
  const Pack pack = *reinterpret_cast<const Pack*>(from);
#pragma unroll
  for (int v = 0; v < V; ++v) to[v] = to_float(pack.values[v]);
}
template <int V, class T>
__device__ void store(const float (&from)[V], T* to) {
  struct alignas(sizeof(T) * V) Pack {
    T values[V];
  };
  Pack pack;
#pragma unroll
  for (int v = 0; v < V; ++v) pack.values[v] = from_float<T>(from[v]);
  *reinterpret_cast<Pack*>(to) = pack;
}

/// Rows of one batch entry: those before the first come from the state, or are zeros, as are those behind the last.
template <class T>
struct Rows {
  const T* x;
  const T* state;
  int64_t seq, channels, kernel;

  __device__ const T* at(int64_t t) const {
    if (t >= 0) return t < seq ? x + t * channels : nullptr;
    return state != nullptr ? state + (kernel - 1 + t) * channels : nullptr;
  }
};

/// Whether V neighbouring elements can be moved at once in all of these rows.
template <int V, class... T>
bool in_packs(int64_t channels, const T*... pointers) {
  return channels % V == 0 && ((reinterpret_cast<uintptr_t>(pointers) % (V * sizeof(T)) == 0) && ...);
}

enum class Finish { plain, silu, silu_slope };

template <class In, class Out, class Grad>
struct Convolve {
  const In* x;
  const In* state;  // or null
  const float* taps;
  const float* bias;  // or null
  const Grad* dy;     // for silu_slope
  Out* y;
  int64_t seq, channels, kernel;
  int64_t first, count;  // positions [first, first + count) are computed; y holds these
  int64_t shift;         // the first row of position t is t + shift
  bool reversed;         // taps from the last to the first
  Finish finish;
};

/// y[t] = finish(bias + Σ_m tap[m] · row[t + shift + m])
template <int V, class In, class Out, class Grad>
__global__ void __launch_bounds__(kWarp* kStrips) convolve_kernel(Convolve<In, Out, Grad> a) {
  const int64_t channel = (blockIdx.x * int64_t{kWarp} + threadIdx.x) * V;
  const int64_t batch = blockIdx.z;
  const int64_t begin = (blockIdx.y * int64_t{kStrips} + threadIdx.y) * kStrip;
  if (channel >= a.channels || begin >= a.count) return;
  const Rows<In> rows{a.x + batch * a.seq * a.channels + channel,
                      a.state != nullptr ? a.state + batch * (a.kernel - 1) * a.channels + channel : nullptr, a.seq,
                      a.channels, a.kernel};
  float sum[kStrip][V];
  float window[kStrip][V];  // window[r]: the tap that the row at hand has for position begin + r
#pragma unroll
  for (int r = 0; r < kStrip; ++r) {
#pragma unroll
    for (int v = 0; v < V; ++v) {
      sum[r][v] = a.bias != nullptr ? a.bias[channel + v] : 0.0F;
      window[r][v] = 0;
    }
  }
  const int64_t source = a.first + begin + a.shift;
  for (int64_t m = 0; m < a.kernel + kStrip - 1; ++m) {
#pragma unroll
    for (int r = kStrip - 1; r > 0; --r) {
#pragma unroll
      for (int v = 0; v < V; ++v) window[r][v] = window[r - 1][v];
    }
    if (m < a.kernel) load<V>(a.taps + (a.reversed ? a.kernel - 1 - m : m) * a.channels + channel, window[0]);
    const In* row = rows.at(source + m);
    if (row == nullptr) continue;
    float value[V];
    load<V>(row, value);
#pragma unroll
    for (int r = 0; r < kStrip; ++r) {
      if (m - r < 0 || m - r >= a.kernel)
        continue;  // a row that is not seen must not count, even where it is no number
#pragma unroll
      for (int v = 0; v < V; ++v) sum[r][v] = fmaf(window[r][v], value[v], sum[r][v]);
    }
  }
#pragma unroll
  for (int r = 0; r < kStrip; ++r) {
    if (begin + r >= a.count) break;
    const int64_t at = (batch * a.count + begin + r) * a.channels + channel;
    if (a.finish == Finish::silu) {
#pragma unroll
      for (int v = 0; v < V; ++v) sum[r][v] = silu(sum[r][v]);
    } else if (a.finish == Finish::silu_slope) {
      float dy[V];
      load<V>(a.dy + at, dy);
#pragma unroll
      for (int v = 0; v < V; ++v) sum[r][v] = dy[v] * silu_slope(sum[r][v]);
    }
    store<V>(sum[r], a.y + at);
  }
}

template <class In, class Out, class Grad>
void convolve(const Device& device, int64_t batch, const Convolve<In, Out, Grad>& args) {
  if (batch == 0 || args.count == 0 || args.channels == 0) return;
  const bool four = in_packs<4>(args.channels, args.x, args.state, args.taps, args.bias, args.dy, args.y);
  const int64_t lanes = four ? args.channels / 4 : args.channels;
  const dim3 block(kWarp, kStrips);
  const dim3 grid(static_cast<unsigned>((lanes + kWarp - 1) / kWarp),
                  static_cast<unsigned>((args.count + kStrip * kStrips - 1) / (kStrip * kStrips)),
                  static_cast<unsigned>(batch));
  const cudaStream_t stream = stream_of(device);
  if (four) {
    convolve_kernel<4><<<grid, block, 0, stream>>>(args);
  } else {
    convolve_kernel<1><<<grid, block, 0, stream>>>(args);
  }
  check_launch("causal_conv1d");
}

constexpr int kTaps = 4;        // of the backward walk
constexpr int kWalk = 64;       // positions a thread walks through
constexpr int kWalkStrips = 8;  // of a block, whose sums are added before they leave it

template <class T>
struct Walk {
  const T *x, *state, *dy;
  const float *taps, *bias;
  T *dx, *dstate;
  float* parts;  // [batch · blocks of strips, kTaps + 1, channels]
  int64_t seq, channels;
  bool silu;
};

/// V channels and one strip of a thread; the strips of a block lie behind one another.
template <int V, class T>
__global__ void __launch_bounds__(kWarp* kWalkStrips) walk_kernel(Walk<T> a) {
  __shared__ float shares[kTaps + 1][V][kWalkStrips][kWarp];
  const int64_t channel = (blockIdx.x * int64_t{kWarp} + threadIdx.x) * V;
  const int64_t batch = blockIdx.z;
  const int64_t begin = (blockIdx.y * int64_t{kWalkStrips} + threadIdx.y) * kWalk;
  float dtaps[kTaps][V] = {};
  float dbias[V] = {};
  if (channel < a.channels && begin < a.seq) {
    const int64_t end = min(begin + kWalk, a.seq);
    const int64_t entry = batch * a.seq * a.channels + channel;
    const int64_t before = batch * (kTaps - 1) * a.channels + channel;
    const Rows<T> rows{a.x + entry, a.state != nullptr ? a.state + before : nullptr, a.seq, a.channels, kTaps};
    float taps[kTaps][V];
    float x[kTaps][V] = {};  // positions t − 3 … t
    float g[kTaps][V] = {};
    float bias[V];
#pragma unroll
    for (int v = 0; v < V; ++v) bias[v] = a.bias != nullptr ? a.bias[channel + v] : 0.0F;
#pragma unroll
    for (int j = 0; j < kTaps; ++j) load<V>(a.taps + j * a.channels + channel, taps[j]);
#pragma unroll
    for (int j = 1; j < kTaps; ++j) {
      const T* row = rows.at(begin - kTaps + j);
      if (row != nullptr) load<V>(row, x[j]);
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
        load<V>(a.x + entry + t * a.channels, now);
        load<V>(a.dy + entry + t * a.channels, dy);
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
      // All of g that dx[t − 3] needs is in the window now.
      const int64_t target = t - kTaps + 1;
      if (target < begin && (target >= 0 || a.dstate == nullptr || begin != 0)) continue;
      float dx[V];
#pragma unroll
      for (int v = 0; v < V; ++v) {
        dx[v] = 0;
#pragma unroll
        for (int j = 0; j < kTaps; ++j) dx[v] = fmaf(taps[j][v], g[kTaps - 1 - j][v], dx[v]);
      }
      store<V>(dx, target >= 0 ? a.dx + entry + target * a.channels : a.dstate + before + t * a.channels);
    }
  }
#pragma unroll
  for (int v = 0; v < V; ++v) {
#pragma unroll
    for (int j = 0; j < kTaps; ++j) shares[j][v][threadIdx.y][threadIdx.x] = dtaps[j][v];
    shares[kTaps][v][threadIdx.y][threadIdx.x] = dbias[v];
  }
  __syncthreads();
  const int64_t part = batch * gridDim.y + blockIdx.y;
  for (int item = threadIdx.y; item < (kTaps + 1) * V; item += kWalkStrips) {
    const int j = item / V;
    const int v = item % V;
    if (channel >= a.channels) break;
    float sum = 0;
#pragma unroll
    for (int strip = 0; strip < kWalkStrips; ++strip) sum += shares[j][v][strip][threadIdx.x];
    a.parts[(part * (kTaps + 1) + j) * a.channels + channel + v] = sum;
  }
}

template <class T>
void backward_walk(const CausalConv1dBackward& args) {
  using D = DeviceType<T>;
  const CausalConv1dForward& f = args.forward;
  const int64_t batch = f.x.dim(0);
  const int64_t seq = f.x.dim(1);
  const int64_t channels = f.x.dim(2);
  const int64_t blocks = (seq + kWalk * kWalkStrips - 1) / (kWalk * kWalkStrips);
  const Tensor parts = Tensor::empty({batch * blocks, kTaps + 1, channels}, DType::f32, f.x.device());
  const Walk<D> walk{device_data<T>(f.x),
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
  const bool two = in_packs<2>(channels, walk.x, walk.state, walk.dy, walk.taps, walk.bias, walk.dx, walk.dstate);
  const int64_t lanes = two ? channels / 2 : channels;
  const dim3 block(kWarp, kWalkStrips);
  const dim3 grid(static_cast<unsigned>((lanes + kWarp - 1) / kWarp), static_cast<unsigned>(blocks),
                  static_cast<unsigned>(batch));
  const cudaStream_t stream = stream_of(f.x.device());
  if (two) {
    walk_kernel<2><<<grid, block, 0, stream>>>(walk);
  } else {
    walk_kernel<1><<<grid, block, 0, stream>>>(walk);
  }
  check_launch("causal_conv1d");
  const int64_t stride = (kTaps + 1) * channels;
  add_parts("causal_conv1d", parts.data<float>(), batch * blocks, stride, args.dtaps);
  add_parts("causal_conv1d", parts.data<float>() + kTaps * channels, batch * blocks, stride, args.dbias);
}

/// Over a range of the positions of all batch entries: parts[range][j][channel] = Σ g[t] · x[t − kernel + 1 + j], and
/// for j = kernel Σ g[t].
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
    const Rows<T> rows{x + entry * seq * channels + channel,
                       state != nullptr ? state + entry * (kernel - 1) * channels + channel : nullptr, seq, channels,
                       kernel};
    const T* from = rows.at(row - entry * seq - kernel + 1 + j);
    if (from != nullptr) sum = fmaf(value, to_float(*from), sum);
  }
  parts[blockIdx.y * (kernel + 1) * channels + item] = sum;
}

/// dx, dstate and the sums from g, for any number of taps.
template <class T, class G>
void backward_from_g(const CausalConv1dBackward& args, const G* g) {
  using D = DeviceType<T>;
  const CausalConv1dForward& f = args.forward;
  const int64_t batch = f.x.dim(0);
  const int64_t seq = f.x.dim(1);
  const int64_t channels = f.x.dim(2);
  const int64_t kernel = f.taps.dim(0);
  Convolve<G, D, D> pull{g,       nullptr,      device_data<float>(f.taps),
                         nullptr, nullptr,      device_data<T>(args.dx),
                         seq,     channels,     kernel,
                         0,       seq,          0,
                         true,    Finish::plain};
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
Convolve<DeviceType<T>, DeviceType<T>, DeviceType<T>> forward_args(const CausalConv1dForward& f, Finish finish) {
  return {device_data<T>(f.x),
          device_data<T>(f.state),
          device_data<float>(f.taps),
          device_data<float>(f.bias),
          nullptr,
          device_data<T>(f.y),
          f.x.dim(1),
          f.x.dim(2),
          f.taps.dim(0),
          0,
          f.x.dim(1),
          1 - f.taps.dim(0),
          false,
          finish};
}

template <class T>
void backward(const CausalConv1dBackward& args) {
  using D = DeviceType<T>;
  const CausalConv1dForward& f = args.forward;
  if (f.x.numel() == 0) {
    for (const Tensor& grad : {args.dtaps, args.dbias, args.dstate}) clear("causal_conv1d", grad);
    return;
  }
  if (f.taps.dim(0) == kTaps) return backward_walk<T>(args);
  if (!f.silu) return backward_from_g<T>(args, static_cast<const D*>(device_data<T>(args.dy)));
  const Tensor g = Tensor::empty(f.x.shape(), DType::f32, f.x.device());
  const auto from = forward_args<T>(f, Finish::silu_slope);
  const Convolve<D, float, D> slope{
      from.x,          from.state, from.taps,     from.bias,         device_data<T>(args.dy),
      g.data<float>(), from.seq,   from.channels, from.kernel,       from.first,
      from.count,      from.shift, false,         Finish::silu_slope};
  convolve(f.x.device(), f.x.dim(0), slope);
  backward_from_g<T>(args, static_cast<const float*>(g.data<float>()));
}

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
    convolve(args.x.device(), args.x.dim(0), forward_args<T>(args, args.silu ? Finish::silu : Finish::plain));
  });
}

void causal_conv1d_backward(const CausalConv1dBackward& args) {
  lamina::cuda::visit_floating("causal_conv1d", args.dy.dtype(),
                               [&](auto tag) { backward<typename decltype(tag)::type>(args); });
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
