// Divided as selective_scan: the modes of a channel lie in a group of lanes, four a lane, and where batch · channels do
// not fill the device the sequence is cut into segments, between which states (backwards: their gradients) are carried
// with z^length. Modes are discretised in f64 by a kernel of their own and used in f32. Backward recomputes a chunk of
// 64 positions from the saved state, keeping every eighth, and then eight at a time into registers. The gradients of z
// and c' are summed per batch entry and segment, then over these in order and in f64.
#include "lamina/ops/ssm/parts_cuda.h"
#include "lamina/ops/ssm/s4d.h"
#include "lamina/ops/ssm/s4d_modes.cuh"
#include "lamina/ops/ssm/scan.cuh"
#include "lamina/ops/ssm/scan_shape.cuh"

namespace lamina::ops::cuda {
namespace {

using lamina::cuda::check_launch;
using lamina::cuda::device_data;
using lamina::cuda::DeviceType;
using lamina::cuda::from_float;
using lamina::cuda::stream_of;
using lamina::cuda::to_float;

constexpr const char* kOp = "s4d_recurrence";
constexpr int kChunk = static_cast<int>(kScanChunk);
constexpr int kSub = 8;
constexpr int kTilePositions = 32;

/// What a segment multiplies a state with, and the discretised mode: z, 2 c', z^segment_length.
struct Mode {
  float2 z, gain, whole;
};

__global__ void modes_kernel(S4dPointers parameters, int64_t count, double length, Mode* modes) {
  const int64_t i = blockIdx.x * int64_t{kScanThreads} + threadIdx.x;
  if (i >= count) return;
  const S4dDeviceMode mode(parameters, i);
  const Complex gain = 2.0 * mode.gain();
  const Complex whole = mode.power(length);
  const auto rounded = [](Complex value) {
    return make_float2(static_cast<float>(value.re), static_cast<float>(value.im));
  };
  modes[i] = {rounded(mode.z), rounded(gain), rounded(whole)};
}

/// The modes and complex numbers of one lane.
struct Lane {
  int mine, part;
  int64_t channel;
  bool real;
  float2 z[kPerLane], gain[kPerLane];

  __device__ Lane(const ScanShape& shape, const Mode* modes, int64_t first) {
    mine = threadIdx.x / shape.group;
    part = threadIdx.x % shape.group;
    channel = first + mine;
    real = channel < shape.channels;
#pragma unroll
    for (int k = 0; k < kPerLane; ++k) {
      z[k] = gain[k] = make_float2(0, 0);
      if (!used(shape, k)) continue;
      const Mode& mode = modes[channel * shape.n + number(k)];
      z[k] = mode.z;
      gain[k] = mode.gain;
    }
  }
  __device__ int64_t number(int k) const { return part * kPerLane + k; }
  __device__ bool used(const ScanShape& shape, int k) const { return real && number(k) < shape.n; }
  /// x = z · x + u
  __device__ void advance(float u, float2 (&x)[kPerLane]) const {
#pragma unroll
    for (int k = 0; k < kPerLane; ++k) x[k] = next(k, u, x[k]);
  }
  __device__ float2 next(int k, float u, float2 x) const {
    return make_float2(fmaf(-z[k].y, x.y, fmaf(z[k].x, x.x, u)), fmaf(z[k].y, x.x, z[k].x * x.y));
  }
};

/// Number k of a lane in [batch, channels, n, 2].
__device__ inline float2* outside(const ScanShape& shape, float* state, int64_t batch, const Lane& lane, int k) {
  return reinterpret_cast<float2*>(state) + (batch * shape.channels + lane.channel) * shape.n + lane.number(k);
}
/// Its real part in [rows, 2, n, channels]; the imaginary part lies n · channels behind.
__device__ inline float* inside(const ScanShape& shape, float* states, int64_t row, const Lane& lane, int k) {
  return states + (row * 2 * shape.n + lane.number(k)) * shape.channels + lane.channel;
}

struct Walk {
  float* initial;  // [batch, channels, n, 2], or null
  float* start;    // [batch · segments, 2, n, channels], or null
  float* states;   // [batch · chunks, 2, n, channels], or null
  float* last;
  float* ends;  // [batch · segments, 2, n, channels]
};

template <class T, bool kEmit>
__global__ void __launch_bounds__(kScanThreads)
    walk_kernel(ScanShape shape, const Mode* modes, const T* u, const float* d, Walk walk, T* y) {
  __shared__ float us[kTilePositions * kScanThreads / kSmallestGroup];
  __shared__ float sums[kTilePositions * kScanThreads / kSmallestGroup];
  const int channels = shape.block_channels();
  const int64_t batch = blockIdx.z;
  const int64_t segment = blockIdx.y;
  const int64_t first = blockIdx.x * int64_t{channels};
  const int64_t row = batch * shape.segments + segment;
  const int64_t plane = shape.n * shape.channels;
  const Lane lane(shape, modes, first);
  float2 x[kPerLane];
#pragma unroll
  for (int k = 0; k < kPerLane; ++k) {
    x[k] = make_float2(0, 0);
    if (!lane.used(shape, k)) continue;
    if (walk.start != nullptr) {
      const float* from = inside(shape, walk.start, row, lane, k);
      x[k] = make_float2(from[0], from[plane]);
    } else if (kEmit && walk.initial != nullptr) {
      x[k] = *outside(shape, walk.initial, batch, lane, k);
    }
  }
  const int64_t begin = segment * shape.segment_length;
  const int64_t end = min(begin + shape.segment_length, shape.seq);
  for (int64_t t0 = begin; t0 < end; t0 += kTilePositions) {
    const int count = static_cast<int>(min(int64_t{kTilePositions}, end - t0));
    for (int i = threadIdx.x; i < count * channels; i += kScanThreads) {
      const int64_t ch = first + i % channels;
      us[i] = ch < shape.channels ? to_float(u[(batch * shape.seq + t0 + i / channels) * shape.channels + ch]) : 0.0F;
    }
    __syncthreads();
    for (int t = 0; t < count; ++t) {
      if (kEmit && walk.states != nullptr && (t0 + t) % kScanChunk == 0) {
#pragma unroll
        for (int k = 0; k < kPerLane; ++k) {
          if (!lane.used(shape, k)) continue;
          float* to = inside(shape, walk.states, batch * shape.chunks + (t0 + t) / kScanChunk, lane, k);
          to[0] = x[k].x;
          to[plane] = x[k].y;
        }
      }
      lane.advance(us[t * channels + lane.mine], x);
      if (kEmit) {
        float sum = 0;
#pragma unroll
        for (int k = 0; k < kPerLane; ++k) sum += fmaf(lane.gain[k].x, x[k].x, -lane.gain[k].y * x[k].y);
        sum = group_sum(sum, shape.group);
        if (lane.part == 0) sums[t * channels + lane.mine] = sum;
      }
    }
    __syncthreads();
    if (kEmit) {
      for (int i = threadIdx.x; i < count * channels; i += kScanThreads) {
        const int64_t ch = first + i % channels;
        if (ch >= shape.channels) continue;
        const float value = d != nullptr ? fmaf(d[ch], us[i], sums[i]) : sums[i];
        y[(batch * shape.seq + t0 + i / channels) * shape.channels + ch] = from_float<T>(value);
      }
      // Each thread loads the next tile's u into the places it has just read.
    }
  }
#pragma unroll
  for (int k = 0; k < kPerLane; ++k) {
    if (!lane.used(shape, k)) continue;
    if (!kEmit) {
      float* to = inside(shape, walk.ends, row, lane, k);
      to[0] = x[k].x;
      to[plane] = x[k].y;
    } else if (segment == shape.segments - 1) {
      *outside(shape, walk.last, batch, lane, k) = x[k];
    }
  }
}

/// at[s] holds what segment s adds and gets what it starts from; `from` comes first, `out` gets what is left; either
/// may be null. Backwards the segments are multiplied with the conjugate, and the last one has its own length.
__global__ void carry_kernel(ScanShape shape, S4dPointers parameters, const Mode* modes, const float* from,
                             bool backwards, float* at, float* out) {
  const int64_t item = blockIdx.x * int64_t{kScanThreads} + threadIdx.x;
  if (item >= shape.batch * shape.n * shape.channels) return;
  const int64_t channel = item % shape.channels;
  const int64_t i = item / shape.channels % shape.n;
  const int64_t batch = item / (shape.channels * shape.n);
  const int64_t place = (batch * shape.channels + channel) * shape.n + i;
  const float sign = backwards ? -1.0F : 1.0F;
  float2 x = from != nullptr ? reinterpret_cast<const float2*>(from)[place] : make_float2(0, 0);
  for (int64_t k = 0; k < shape.segments; ++k) {
    const int64_t segment = backwards ? shape.segments - 1 - k : k;
    float2 whole = modes[channel * shape.n + i].whole;
    if (segment == shape.segments - 1) {
      const auto length = static_cast<double>(shape.seq - segment * shape.segment_length);
      const Complex power = S4dDeviceMode(parameters, channel * shape.n + i).power(length);
      whole = make_float2(static_cast<float>(power.re), static_cast<float>(power.im));
    }
    whole.y *= sign;
    float* re = at + (((batch * shape.segments + segment) * 2) * shape.n + i) * shape.channels + channel;
    float* im = re + shape.n * shape.channels;
    const float2 added = make_float2(*re, *im);
    *re = x.x;
    *im = x.y;
    x = make_float2(fmaf(-whole.y, x.y, fmaf(whole.x, x.x, added.x)), fmaf(whole.y, x.x, fmaf(whole.x, x.y, added.y)));
  }
  if (out != nullptr) reinterpret_cast<float2*>(out)[place] = x;
}

template <class T>
struct Back {
  const T *u, *dy;
  const float* d;  // or null
  float* dlast;    // [batch, channels, n, 2], or null
  float* start;    // gradient behind each segment, or null for one segment
  float* states;
  float* ends;
  T* du;
  float* dz;     // [batch · segments, 2, n, channels]
  float* dgain;  // likewise
  float* dd;     // [batch · segments, channels]
  float* dinitial;
};

/// One position backwards: grad = conj(z) (grad + conj(gain) dy); the sum of its real part before that is given back.
__device__ inline float pull(const Lane& lane, float dy, float2 (&grad)[kPerLane], float2 (&here)[kPerLane]) {
  float sum = 0;
#pragma unroll
  for (int k = 0; k < kPerLane; ++k) {
    const float2 g = make_float2(fmaf(lane.gain[k].x, dy, grad[k].x), fmaf(-lane.gain[k].y, dy, grad[k].y));
    here[k] = g;
    sum += g.x;
    const float2 z = lane.z[k];
    grad[k] = make_float2(fmaf(z.x, g.x, z.y * g.y), fmaf(-z.y, g.x, z.x * g.y));
  }
  return sum;
}

template <class T>
__global__ void __launch_bounds__(kScanThreads) ends_kernel(ScanShape shape, const Mode* modes, Back<T> back) {
  const int channels = shape.block_channels();
  const int64_t batch = blockIdx.z;
  const int64_t segment = blockIdx.y;
  const Lane lane(shape, modes, blockIdx.x * int64_t{channels});
  if (!lane.real) return;
  float2 grad[kPerLane] = {};
  float2 here[kPerLane];
  const int64_t begin = segment * shape.segment_length;
  const int64_t end = min(begin + shape.segment_length, shape.seq);
#pragma unroll 4
  for (int64_t t = end - 1; t >= begin; --t) {
    pull(lane, to_float(back.dy[(batch * shape.seq + t) * shape.channels + lane.channel]), grad, here);
  }
#pragma unroll
  for (int k = 0; k < kPerLane; ++k) {
    if (!lane.used(shape, k)) continue;
    float* to = inside(shape, back.ends, batch * shape.segments + segment, lane, k);
    to[0] = grad[k].x;
    to[shape.n * shape.channels] = grad[k].y;
  }
}

struct Sums {
  float2 dz[kPerLane], dgain[kPerLane];
  float dd;
};

/// Back through `count` <= kSub positions from t0 on within the chunk; du replaces dy in shared memory.
__device__ inline void sub_back(const ScanShape& shape, const Lane& lane, const float* us, float* dys,
                                const float2* kept, float skip, int t0, int count, float2 (&grad)[kPerLane],
                                Sums& sums) {
  const int channels = shape.block_channels();
  float2 x[kSub + 1][kPerLane];
#pragma unroll
  for (int k = 0; k < kPerLane; ++k) x[0][k] = kept[(t0 / kSub * kScanThreads + threadIdx.x) * kPerLane + k];
#pragma unroll
  for (int r = 0; r < kSub; ++r) {
    if (r >= count) continue;
    const float u = us[(t0 + r) * channels + lane.mine];
#pragma unroll
    for (int k = 0; k < kPerLane; ++k) x[r + 1][k] = lane.next(k, u, x[r][k]);
  }
#pragma unroll
  for (int r = kSub - 1; r >= 0; --r) {
    if (r >= count) continue;
    const int at = (t0 + r) * channels + lane.mine;
    const float dy = dys[at];
    float2 g[kPerLane];
    float sum = pull(lane, dy, grad, g);
#pragma unroll
    for (int k = 0; k < kPerLane; ++k) {
      const float2 before = x[r][k];
      const float2 after = x[r + 1][k];
      sums.dgain[k].x = fmaf(dy, after.x, sums.dgain[k].x);
      sums.dgain[k].y = fmaf(-dy, after.y, sums.dgain[k].y);
      sums.dz[k].x = fmaf(g[k].x, before.x, fmaf(g[k].y, before.y, sums.dz[k].x));
      sums.dz[k].y = fmaf(-g[k].x, before.y, fmaf(g[k].y, before.x, sums.dz[k].y));
    }
    sum = group_sum(sum, shape.group);
    if (lane.part != 0) continue;
    sums.dd = fmaf(dy, us[at], sums.dd);
    dys[at] = fmaf(skip, dy, sum);  // the sum is complete, so the other lanes have read dy
  }
}

template <class T>
__global__ void __launch_bounds__(kScanThreads) back_kernel(ScanShape shape, const Mode* modes, Back<T> back) {
  extern __shared__ float2 kept[];  // [chunk / kSub, threads, kPerLane]
  const int channels = shape.block_channels();
  float* us = reinterpret_cast<float*>(kept + kChunk / kSub * kScanThreads * kPerLane);  // [chunk, channels]
  float* dys = us + kChunk * channels;
  const int64_t batch = blockIdx.z;
  const int64_t segment = blockIdx.y;
  const int64_t first = blockIdx.x * int64_t{channels};
  const int64_t row = batch * shape.segments + segment;
  const int64_t plane = shape.n * shape.channels;
  const Lane lane(shape, modes, first);
  const float skip = lane.real && back.d != nullptr ? back.d[lane.channel] : 0.0F;
  float2 grad[kPerLane];
  Sums sums{};
#pragma unroll
  for (int k = 0; k < kPerLane; ++k) {
    grad[k] = make_float2(0, 0);
    if (!lane.used(shape, k)) continue;
    if (back.start != nullptr) {
      const float* from = inside(shape, back.start, row, lane, k);
      grad[k] = make_float2(from[0], from[plane]);
    } else if (back.dlast != nullptr) {
      grad[k] = *outside(shape, back.dlast, batch, lane, k);
    }
  }
  const int64_t begin = segment * shape.segment_length;
  const int64_t end = min(begin + shape.segment_length, shape.seq);
  for (int64_t chunk = (end - 1) / kChunk; chunk * kChunk >= begin; --chunk) {
    const int64_t t0 = chunk * kChunk;
    const int count = static_cast<int>(min(int64_t{kChunk}, end - t0));
    for (int i = threadIdx.x; i < count * channels; i += kScanThreads) {
      const int64_t ch = first + i % channels;
      const int64_t at = (batch * shape.seq + t0 + i / channels) * shape.channels + ch;
      us[i] = ch < shape.channels ? to_float(back.u[at]) : 0.0F;
      dys[i] = ch < shape.channels ? to_float(back.dy[at]) : 0.0F;
    }
    __syncthreads();
    float2 x[kPerLane];
#pragma unroll
    for (int k = 0; k < kPerLane; ++k) {
      x[k] = make_float2(0, 0);
      if (!lane.used(shape, k)) continue;
      const float* from = inside(shape, back.states, batch * shape.chunks + chunk, lane, k);
      x[k] = make_float2(from[0], from[plane]);
    }
    for (int t = 0; t < count; ++t) {
      if (t % kSub == 0) {
#pragma unroll
        for (int k = 0; k < kPerLane; ++k) kept[(t / kSub * kScanThreads + threadIdx.x) * kPerLane + k] = x[k];
        if (t + kSub >= count) break;
      }
      lane.advance(us[t * channels + lane.mine], x);
    }
    for (int s0 = (count - 1) / kSub * kSub; s0 >= 0; s0 -= kSub) {
      sub_back(shape, lane, us, dys, kept, skip, s0, min(kSub, count - s0), grad, sums);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < count * channels; i += kScanThreads) {
      const int64_t ch = first + i % channels;
      if (ch >= shape.channels) continue;
      back.du[(batch * shape.seq + t0 + i / channels) * shape.channels + ch] = from_float<T>(dys[i]);
    }
    __syncthreads();
  }
  if (lane.real && lane.part == 0) back.dd[row * shape.channels + lane.channel] = sums.dd;
#pragma unroll
  for (int k = 0; k < kPerLane; ++k) {
    if (!lane.used(shape, k)) continue;
    float* dz = inside(shape, back.dz, row, lane, k);
    float* dgain = inside(shape, back.dgain, row, lane, k);
    dz[0] = sums.dz[k].x;
    dz[plane] = sums.dz[k].y;
    dgain[0] = sums.dgain[k].x;
    dgain[plane] = sums.dgain[k].y;
    if (back.start == nullptr && back.dinitial != nullptr) *outside(shape, back.dinitial, batch, lane, k) = grad[k];
  }
}

/// A warp is one channel, its lanes the modes: sums over batch entries and segments, then the parameters' gradients.
__global__ void finish_kernel(S4dPointers parameters, const float* dz, const float* dgain, int64_t rows,
                              int64_t channels, S4dPointers grads) {
  const int64_t channel = (blockIdx.x * int64_t{kScanThreads} + threadIdx.x) / lamina::cuda::kWarp;
  const int lane = threadIdx.x % lamina::cuda::kWarp;
  if (channel >= channels) return;
  const int64_t n = parameters.n;
  double dlog_dt = 0;
  for (int64_t i = lane; i < n; i += lamina::cuda::kWarp) {
    Complex grad_z;
    Complex grad_gain;
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t at = (row * 2 * n + i) * channels + channel;
      const int64_t plane = n * channels;
      grad_z = grad_z + Complex{static_cast<double>(dz[at]), static_cast<double>(dz[at + plane])};
      grad_gain = grad_gain + Complex{static_cast<double>(dgain[at]), static_cast<double>(dgain[at + plane])};
    }
    const S4dDeviceMode mode(parameters, channel * n + i);
    dlog_dt += mode.finish(2.0 * grad_gain, grad_z * conj(mode.z), channel * n + i, grads);
  }
  dlog_dt = warp_sum(dlog_dt);
  if (lane == 0) grads.log_dt[channel] = dlog_dt;
}

/// The discretised modes; an array of Mode in a tensor of numbers.
Tensor discretise(const S4dParameters& parameters, const ScanShape& shape, const Device& device) {
  static_assert(sizeof(Mode) == 6 * sizeof(float));
  Tensor modes = Tensor::empty({shape.channels * shape.n, 6}, DType::f32, device);
  if (modes.numel() == 0) return modes;
  const int64_t count = shape.channels * shape.n;
  modes_kernel<<<lamina::cuda::blocks_for(count, kScanThreads), kScanThreads, 0, stream_of(device)>>>(
      S4dPointers(parameters), count, static_cast<double>(shape.segment_length),
      reinterpret_cast<Mode*>(modes.data<float>()));
  check_launch(kOp);
  return modes;
}

void carry(const Device& device, const ScanShape& shape, const S4dParameters& parameters, const Mode* modes,
           const float* from, bool backwards, float* at, float* out) {
  const int64_t items = shape.batch * shape.n * shape.channels;
  if (items == 0) return;
  carry_kernel<<<lamina::cuda::blocks_for(items, kScanThreads), kScanThreads, 0, stream_of(device)>>>(
      shape, S4dPointers(parameters), modes, from, backwards, at, out);
  check_launch(kOp);
}

template <class T>
void forward(const S4dScanForward& args) {
  using D = DeviceType<T>;
  const Device& device = args.u.device();
  const ScanShape shape(args.u, args.parameters.a_imag.dim(1), lamina::cuda::processors(device));
  const Tensor held = discretise(args.parameters, shape, device);
  const auto* modes = reinterpret_cast<const Mode*>(held.data<float>());
  const D* u = device_data<T>(args.u);
  const float* d = device_data<float>(args.d);
  Walk walk{device_data<float>(args.initial_state), nullptr, device_data<float>(args.states),
            device_data<float>(args.last_state), nullptr};
  const cudaStream_t stream = stream_of(device);
  Tensor ends;
  if (shape.segments > 1) {
    ends = Tensor::empty({shape.batch * shape.segments, 2, shape.n, shape.channels}, DType::f32, device);
    walk.ends = ends.data<float>();
    walk_kernel<D, false><<<shape.grid(), kScanThreads, 0, stream>>>(shape, modes, u, d, walk, device_data<T>(args.y));
    check_launch(kOp);
    carry(device, shape, args.parameters, modes, walk.initial, false, walk.ends, nullptr);
    walk.start = walk.ends;
  }
  walk_kernel<D, true><<<shape.grid(), kScanThreads, 0, stream>>>(shape, modes, u, d, walk, device_data<T>(args.y));
  check_launch(kOp);
}

template <class T>
void backward(const S4dScanBackward& args) {
  using D = DeviceType<T>;
  const S4dScanForward& f = args.forward;
  const Device& device = f.u.device();
  const ScanShape shape(f.u, f.parameters.a_imag.dim(1), lamina::cuda::processors(device));
  const Tensor held = discretise(f.parameters, shape, device);
  const auto* modes = reinterpret_cast<const Mode*>(held.data<float>());
  const int64_t rows = shape.batch * shape.segments;
  const Tensor ends = Tensor::empty({rows, 2, shape.n, shape.channels}, DType::f32, device);
  const Tensor dz = Tensor::empty(ends.shape(), DType::f32, device);
  const Tensor dgain = Tensor::empty(ends.shape(), DType::f32, device);
  const Tensor dd = Tensor::empty({rows, shape.channels}, DType::f32, device);
  Back<D> back{device_data<T>(f.u),
               device_data<T>(args.dy),
               device_data<float>(f.d),
               device_data<float>(args.dlast_state),
               nullptr,
               device_data<float>(f.states),
               ends.data<float>(),
               device_data<T>(args.du),
               dz.data<float>(),
               dgain.data<float>(),
               dd.data<float>(),
               device_data<float>(args.dinitial_state)};
  const cudaStream_t stream = stream_of(device);
  if (shape.segments > 1) {
    ends_kernel<D><<<shape.grid(), kScanThreads, 0, stream>>>(shape, modes, back);
    check_launch(kOp);
    carry(device, shape, f.parameters, modes, back.dlast, true, back.ends, back.dinitial);
    back.start = back.ends;
  }
  const size_t bytes = sizeof(float2) * kChunk / kSub * kScanThreads * kPerLane +
                       sizeof(float) * 2 * kChunk * static_cast<size_t>(shape.block_channels());
  LAMINA_CUDA(
      cudaFuncSetAttribute(back_kernel<D>, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)), kOp);
  back_kernel<D><<<shape.grid(), kScanThreads, bytes, stream>>>(shape, modes, back);
  check_launch(kOp);
  const int blocks = lamina::cuda::blocks_for(shape.channels * lamina::cuda::kWarp, kScanThreads);
  finish_kernel<<<blocks, kScanThreads, 0, stream>>>(S4dPointers(f.parameters), back.dz, back.dgain, rows,
                                                     shape.channels, S4dPointers(args.grads));
  check_launch(kOp);
  add_parts(kOp, back.dd, rows, shape.channels, args.dd);
}

}  // namespace

void s4d_scan_forward(const S4dScanForward& args) {
  check_scan_size(kOp, args.parameters.a_imag.dim(1));
  if (args.u.dim(0) * args.u.dim(2) == 0) return;
  lamina::cuda::visit_floating(kOp, args.u.dtype(), [&](auto tag) { forward<typename decltype(tag)::type>(args); });
}

void s4d_scan_backward(const S4dScanBackward& args) {
  check_scan_size(kOp, args.forward.parameters.a_imag.dim(1));
  if (args.forward.u.numel() == 0) {  // the parameters' gradients are given as zeros
    clear(kOp, args.dd);
    clear(kOp, args.dinitial_state);
    if (args.dinitial_state.defined() && args.dlast_state.defined()) {
      Tensor target = args.dinitial_state;
      target.copy_(args.dlast_state);
    }
    return;
  }
  lamina::cuda::visit_floating(kOp, args.dy.dtype(), [&](auto tag) { backward<typename decltype(tag)::type>(args); });
}

}  // namespace lamina::ops::cuda
