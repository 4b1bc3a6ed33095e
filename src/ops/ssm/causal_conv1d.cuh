#pragma once

// The convolution kernel that computes y, g and dx. The lanes of a warp run over channels, which are contiguous; a
// thread has four channels if their number is a multiple of four. A block is 32 lanes × 8 strips of eight positions.
// Rows that several strips need come from the L1 cache, so x is read from memory once. A thread keeps the sums of its
// strip in registers while it reads one row after the other, with a sliding window of taps.

#include "lamina/ops/ssm/causal_conv1d_kernel.h"
#include "lamina/ops/ssm/scan.cuh"

namespace lamina::ops::cuda {

using lamina::cuda::check_launch;
using lamina::cuda::device_data;
using lamina::cuda::DeviceType;
using lamina::cuda::from_float;
using lamina::cuda::kWarp;
using lamina::cuda::stream_of;
using lamina::cuda::to_float;

constexpr int kConvStrip = 8;   // positions per thread
constexpr int kConvStrips = 8;  // strips per block

/// Loads V adjacent elements as floats.
template <int V, class T>
__device__ void load_stretch(const T* from, float (&to)[V]) {
  const auto held = *reinterpret_cast<const lamina::cuda::Vec<T, V>*>(from);
#pragma unroll
  for (int v = 0; v < V; ++v) to[v] = to_float(held.values[v]);
}
template <int V, class T>
__device__ void store_stretch(const float (&from)[V], T* to) {
  lamina::cuda::Vec<T, V> held;
#pragma unroll
  for (int v = 0; v < V; ++v) held.values[v] = from_float<T>(from[v]);
  *reinterpret_cast<lamina::cuda::Vec<T, V>*>(to) = held;
}

/// The rows of one batch entry. Rows before the first position come from the state, or are zeros; rows after the last
/// are zeros.
template <class T>
struct ConvRows {
  const T* x;
  const T* state;
  int64_t seq, channels, kernel;

  __device__ const T* at(int64_t t) const {
    if (t >= 0) return t < seq ? x + t * channels : nullptr;
    return state != nullptr ? state + (kernel - 1 + t) * channels : nullptr;
  }
};

/// True if all of these rows allow access to V adjacent elements at once.
template <int V, class... T>
bool fits_stretches(int64_t channels, const T*... pointers) {
  return channels % V == 0 && ((reinterpret_cast<uintptr_t>(pointers) % (V * sizeof(T)) == 0) && ...);
}

enum class ConvFinish { plain, silu, silu_slope };

template <class In, class Out, class Grad>
struct Convolve {
  const In* x;
  const In* state;  // [batch, kernel − 1, channels], or null
  const float* taps;
  const float* bias;  // [channels], or null
  const Grad* dy;     // output gradient, for silu_slope
  Out* y;
  int64_t seq, channels, kernel;
  int64_t first, count;  // computes positions [first, first + count), which y holds
  int64_t shift;         // position t uses rows from t + shift on
  bool reversed;         // apply the taps from last to first
  ConvFinish finish;
};

/// y[t] = finish(bias + Σ_m tap[m] · row[t + shift + m]). Used for y, for g and for dx.
template <int V, class In, class Out, class Grad>
__global__ void __launch_bounds__(kWarp* kConvStrips) convolve_kernel(Convolve<In, Out, Grad> a) {
  const int64_t channel = (blockIdx.x * int64_t{kWarp} + threadIdx.x) * V;
  const int64_t batch = blockIdx.z;
  const int64_t begin = (blockIdx.y * int64_t{kConvStrips} + threadIdx.y) * kConvStrip;
  if (channel >= a.channels || begin >= a.count) return;
  const ConvRows<In> rows{a.x + batch * a.seq * a.channels + channel,
                          a.state != nullptr ? a.state + batch * (a.kernel - 1) * a.channels + channel : nullptr, a.seq,
                          a.channels, a.kernel};
  float sum[kConvStrip][V];
  float window[kConvStrip][V];  // window[r]: the tap that multiplies the current row for position begin + r
#pragma unroll
  for (int r = 0; r < kConvStrip; ++r) {
#pragma unroll
    for (int v = 0; v < V; ++v) {
      sum[r][v] = a.bias != nullptr ? a.bias[channel + v] : 0.0F;
      window[r][v] = 0;
    }
  }
  const int64_t source = a.first + begin + a.shift;
  for (int64_t m = 0; m < a.kernel + kConvStrip - 1; ++m) {
#pragma unroll
    for (int r = kConvStrip - 1; r > 0; --r) {
#pragma unroll
      for (int v = 0; v < V; ++v) window[r][v] = window[r - 1][v];
    }
    if (m < a.kernel) load_stretch<V>(a.taps + (a.reversed ? a.kernel - 1 - m : m) * a.channels + channel, window[0]);
    const In* row = rows.at(source + m);
    if (row == nullptr) continue;
    float value[V];
    load_stretch<V>(row, value);
#pragma unroll
    for (int r = 0; r < kConvStrip; ++r) {
      if (m - r < 0 || m - r >= a.kernel) continue;  // rows outside the kernel must not contribute, even NaN
#pragma unroll
      for (int v = 0; v < V; ++v) sum[r][v] = fmaf(window[r][v], value[v], sum[r][v]);
    }
  }
#pragma unroll
  for (int r = 0; r < kConvStrip; ++r) {
    if (begin + r >= a.count) break;
    const int64_t at = (batch * a.count + begin + r) * a.channels + channel;
    if (a.finish == ConvFinish::silu) {
#pragma unroll
      for (int v = 0; v < V; ++v) sum[r][v] = silu(sum[r][v]);
    } else if (a.finish == ConvFinish::silu_slope) {
      float dy[V];
      load_stretch<V>(a.dy + at, dy);
#pragma unroll
      for (int v = 0; v < V; ++v) sum[r][v] = dy[v] * silu_slope(sum[r][v]);
    }
    store_stretch<V>(sum[r], a.y + at);
  }
}

template <class In, class Out, class Grad>
void convolve(const Device& device, int64_t batch, const Convolve<In, Out, Grad>& args) {
  if (batch == 0 || args.count == 0 || args.channels == 0) return;
  const bool four = fits_stretches<4>(args.channels, args.x, args.state, args.taps, args.bias, args.dy, args.y);
  const int64_t lanes = four ? args.channels / 4 : args.channels;
  const dim3 block(kWarp, kConvStrips);
  const dim3 grid(static_cast<unsigned>((lanes + kWarp - 1) / kWarp),
                  static_cast<unsigned>((args.count + kConvStrip * kConvStrips - 1) / (kConvStrip * kConvStrips)),
                  static_cast<unsigned>(batch));
  const cudaStream_t stream = stream_of(device);
  if (four) {
    convolve_kernel<4><<<grid, block, 0, stream>>>(args);
  } else {
    convolve_kernel<1><<<grid, block, 0, stream>>>(args);
  }
  check_launch("causal_conv1d");
}

template <class T>
Convolve<DeviceType<T>, DeviceType<T>, DeviceType<T>> forward_args(const CausalConv1dForward& f, ConvFinish finish) {
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

}  // namespace lamina::ops::cuda
