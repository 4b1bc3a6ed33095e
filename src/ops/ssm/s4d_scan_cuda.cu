// Work is divided as in selective_scan: the modes of a channel are spread over a group of lanes, four per lane. If
// batch · channels is too small to fill the GPU, the sequence is split into segments, and the states (in backward,
// their gradients) are propagated across segments with z^length. A separate kernel discretizes the modes in f64; the
// scan uses them in f32.
#include "lamina/ops/ssm/s4d_kernel.h"
#include "lamina/ops/ssm/s4d_scan.cuh"
#include "lamina/ops/ssm/selective_scan_kernel.h"

namespace lamina::ops::cuda {
namespace {

constexpr int kTilePositions = 32;

__global__ void modes_kernel(S4dPointers parameters, int64_t count, double length, S4dDiscreteMode* modes) {
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

struct ScanStates {
  float* initial;  // [batch, channels, n, 2], or null
  float* start;    // [batch · segments, 2, n, channels], or null
  float* states;   // [batch · chunks, 2, n, channels], or null
  float* last;
  float* ends;  // [batch · segments, 2, n, channels]
};

template <class T, bool kEmit>
__global__ void __launch_bounds__(kScanThreads)
    scan_kernel(ScanShape shape, const S4dDiscreteMode* modes, const T* u, const float* d, ScanStates states, T* y) {
  __shared__ float us[kTilePositions * kScanThreads / kSmallestGroup];
  __shared__ float sums[kTilePositions * kScanThreads / kSmallestGroup];
  const int channels = shape.block_channels();
  const int64_t batch = blockIdx.z;
  const int64_t segment = blockIdx.y;
  const int64_t first = blockIdx.x * int64_t{channels};
  const int64_t row = batch * shape.segments + segment;
  const int64_t plane = shape.n * shape.channels;
  const S4dLane lane(shape, modes, first);
  float2 x[kPerLane];
#pragma unroll
  for (int k = 0; k < kPerLane; ++k) {
    x[k] = make_float2(0, 0);
    if (!lane.used(shape, k)) continue;
    if (states.start != nullptr) {
      const float* from = inside(shape, states.start, row, lane, k);
      x[k] = make_float2(from[0], from[plane]);
    } else if (kEmit && states.initial != nullptr) {
      x[k] = *outside(shape, states.initial, batch, lane, k);
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
      if (kEmit && states.states != nullptr && (t0 + t) % kScanChunk == 0) {
#pragma unroll
        for (int k = 0; k < kPerLane; ++k) {
          if (!lane.used(shape, k)) continue;
          float* to = inside(shape, states.states, batch * shape.chunks + (t0 + t) / kScanChunk, lane, k);
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
      // Each thread loads u of the next tile into the slots it has just read.
    }
  }
#pragma unroll
  for (int k = 0; k < kPerLane; ++k) {
    if (!lane.used(shape, k)) continue;
    if (!kEmit) {
      float* to = inside(shape, states.ends, row, lane, k);
      to[0] = x[k].x;
      to[plane] = x[k].y;
    } else if (segment == shape.segments - 1) {
      *outside(shape, states.last, batch, lane, k) = x[k];
    }
  }
}

/// Propagates states across segments, see s4d_propagate_states(). The last segment may be shorter than the others.
__global__ void carry_kernel(ScanShape shape, S4dPointers parameters, const S4dDiscreteMode* modes, const float* from,
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
void forward(const S4dScanForward& args) {
  using D = DeviceType<T>;
  const Device& device = args.u.device();
  const ScanShape shape(args.u, args.parameters.a_imag.dim(1), lamina::cuda::sm_count(device));
  const Tensor held = s4d_discretise(args.parameters, shape, device);
  const auto* modes = reinterpret_cast<const S4dDiscreteMode*>(held.data<float>());
  const D* u = device_data<T>(args.u);
  const float* d = device_data<float>(args.d);
  ScanStates states{device_data<float>(args.initial_state), nullptr, device_data<float>(args.states),
                    device_data<float>(args.last_state), nullptr};
  const cudaStream_t stream = stream_of(device);
  Tensor ends;
  if (shape.segments > 1) {
    ends = Tensor::empty({shape.batch * shape.segments, 2, shape.n, shape.channels}, DType::f32, device);
    states.ends = ends.data<float>();
    scan_kernel<D, false>
        <<<shape.grid(), kScanThreads, 0, stream>>>(shape, modes, u, d, states, device_data<T>(args.y));
    check_launch(kS4dOp);
    s4d_propagate_states(device, shape, args.parameters, modes, states.initial, false, states.ends, nullptr);
    states.start = states.ends;
  }
  scan_kernel<D, true><<<shape.grid(), kScanThreads, 0, stream>>>(shape, modes, u, d, states, device_data<T>(args.y));
  check_launch(kS4dOp);
}

}  // namespace

Tensor s4d_discretise(const S4dParameters& parameters, const ScanShape& shape, const Device& device) {
  static_assert(sizeof(S4dDiscreteMode) == 6 * sizeof(float));
  Tensor modes = Tensor::empty({shape.channels * shape.n, 6}, DType::f32, device);
  if (modes.numel() == 0) return modes;
  const int64_t count = shape.channels * shape.n;
  modes_kernel<<<lamina::cuda::blocks_for(count, kScanThreads), kScanThreads, 0, stream_of(device)>>>(
      S4dPointers(parameters), count, static_cast<double>(shape.segment_length),
      reinterpret_cast<S4dDiscreteMode*>(modes.data<float>()));
  check_launch(kS4dOp);
  return modes;
}

void s4d_propagate_states(const Device& device, const ScanShape& shape, const S4dParameters& parameters,
                          const S4dDiscreteMode* modes, const float* from, bool backwards, float* at, float* out) {
  const int64_t items = shape.batch * shape.n * shape.channels;
  if (items == 0) return;
  carry_kernel<<<lamina::cuda::blocks_for(items, kScanThreads), kScanThreads, 0, stream_of(device)>>>(
      shape, S4dPointers(parameters), modes, from, backwards, at, out);
  check_launch(kS4dOp);
}

void s4d_scan_forward(const S4dScanForward& args) {
  check_scan_size(kS4dOp, args.parameters.a_imag.dim(1));
  if (args.u.dim(0) * args.u.dim(2) == 0) return;
  lamina::cuda::visit_floating(kS4dOp, args.u.dtype(), [&](auto tag) { forward<typename decltype(tag)::type>(args); });
}

}  // namespace lamina::ops::cuda
