// The state of a channel is spread over a group of adjacent lanes, four elements per lane. A block takes 128 / group
// channels through a segment of the sequence in tiles. First all threads compute the step sizes of the tile into shared
// memory, with coalesced reads of u and delta. Then the groups run through the positions of the tile. Then all threads
// finish and write y.
//
// If batch · channels is too small to fill the GPU, the sequence is split into segments, in three launches. The first
// computes the contribution of each segment to a zero state. The second, a small one, propagates the states across
// segments; the decay over a segment is exp(a · ΣΔ). The third computes y from the correct initial states.
#include <algorithm>

#include "lamina/ops/ssm/parts_cuda.h"
#include "lamina/ops/ssm/selective_scan.cuh"
#include "lamina/ops/ssm/selective_scan_kernel.h"

namespace lamina::ops::cuda {
namespace {

using lamina::cuda::fast_exp2;
using lamina::cuda::kLog2E;
static_assert(kPerLane == 4);  // a lane reads its elements with one load

/// A thread's part of the inputs of a tile. It is loaded while the previous tile is processed.
template <class T, bool kEmit>
struct TileInputs {
  static constexpr int kMost = 8;  // maximum number of each kind: a tile has at most 1024 elements
  T u[kMost], delta[kMost], z[kEmit ? kMost : 1];
  float b[kMost], c[kEmit ? kMost : 1];

  __device__ void load(const ScanShape& shape, const ScanInputs<T>& in, int64_t batch, int64_t first, int64_t t0,
                       int64_t end) {
    const int channels = shape.block_channels();
    const int64_t channel = first + threadIdx.x % channels;
    const int padded = shape.padded();
#pragma unroll
    for (int k = 0; k < kMost; ++k) {
      const int i = threadIdx.x + k * kScanThreads;
      const int64_t t = t0 + i / channels;
      if (i < shape.tile * channels && t < end && channel < shape.channels) {
        const int64_t at = (batch * shape.seq + t) * shape.channels + channel;
        u[k] = in.u[at];
        delta[k] = in.delta[at];
        if (kEmit && in.z != nullptr) z[kEmit ? k : 0] = in.z[at];
      }
      const int64_t row = t0 + i / padded;
      b[k] = 0.0F;
      if (kEmit) c[kEmit ? k : 0] = 0.0F;
      if (i < shape.tile * padded && row < end && i % padded < shape.n) {
        const int64_t at = (batch * shape.seq + row) * shape.n + i % padded;
        b[k] = in.b[at];
        if (kEmit) c[kEmit ? k : 0] = in.c[at];
      }
    }
  }
  /// Writes step sizes, Δ · u, b and c to shared memory. Missing positions and channels become zeros, which have no
  /// effect.
  __device__ void put(const ScanShape& shape, const ScanInputs<T>& in, int64_t first, int64_t t0, int64_t end,
                      float* steps, float* pushes, float* to_b, float* to_c) const {
    const int channels = shape.block_channels();
    const int64_t channel = first + threadIdx.x % channels;
    const float bias = channel < shape.channels && in.bias != nullptr ? in.bias[channel] : 0.0F;
#pragma unroll
    for (int k = 0; k < kMost; ++k) {
      const int i = threadIdx.x + k * kScanThreads;
      if (i < shape.tile * channels) {
        float step = 0;
        float push = 0;
        if (t0 + i / channels < end && channel < shape.channels) {
          step = to_float(delta[k]) + bias;
          if (in.with_softplus) step = softplus(step);
          push = step * to_float(u[k]);
        }
        steps[i] = step;
        pushes[i] = push;
      }
      if (i < shape.tile * shape.padded()) {
        to_b[i] = b[k];
        if (kEmit) to_c[i] = c[kEmit ? k : 0];
      }
    }
  }
  __device__ void store_y(const ScanShape& shape, const ScanInputs<T>& in, int64_t batch, int64_t first, int64_t t0,
                          int64_t end, const float* sums, T* y) const {
    const int channels = shape.block_channels();
    const int64_t channel = first + threadIdx.x % channels;
    if (channel >= shape.channels) return;
    const float skip = in.d != nullptr ? in.d[channel] : 0.0F;
#pragma unroll
    for (int k = 0; k < kMost; ++k) {
      const int i = threadIdx.x + k * kScanThreads;
      const int64_t t = t0 + i / channels;
      if (i >= shape.tile * channels || t >= end) break;
      float value = sums[i];
      if (in.d != nullptr) value = fmaf(skip, to_float(u[k]), value);
      if (in.z != nullptr) value *= silu_for<T>(to_float(z[kEmit ? k : 0]));
      y[(batch * shape.seq + t) * shape.channels + channel] = from_float<T>(value);
    }
  }
};

/// Reduces four sums over the lanes of a group. Each lane ends up with sum number part % 4.
__device__ inline float share_sums(float (&sums)[4], int part, int group) {
  using lamina::cuda::kAllLanes;
  const bool upper = (part & 2) != 0;
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    const float sent = upper ? sums[k] : sums[k + 2];
    sums[k] = (upper ? sums[k + 2] : sums[k]) + __shfl_xor_sync(kAllLanes, sent, 2);
  }
  const bool odd = (part & 1) != 0;
  const float sent = odd ? sums[0] : sums[1];
  float sum = (odd ? sums[1] : sums[0]) + __shfl_xor_sync(kAllLanes, sent, 1);
  for (int step = 4; step < group; step *= 2) sum += __shfl_xor_sync(kAllLanes, sum, step);
  return sum;
}

/// Runs through a segment of a block's channels. If kEmit is false, computes only the last state and the sum of the
/// steps.
template <class T, bool kEmit, int kGroup>
__global__ void __launch_bounds__(kScanThreads)
    scan_kernel(const __grid_constant__ ScanShape given, ScanInputs<T> in, ScanStates<T> states) {
  extern __shared__ __align__(16) float memory[];
  const ScanShape shape = given.with_static_group<kGroup>();
  constexpr int N = kPerLane;
  constexpr int kTogether = 4;  // positions whose inputs are read before any is used
  const int channels = shape.block_channels();
  const int padded = shape.padded();
  const int tile = shape.tile;
  float* b = memory;                        // [tile, padded]
  float* c = b + tile * padded;             // [tile, padded]
  float* steps = c + tile * padded;         // [tile, channels]
  float* pushes = steps + tile * channels;  // [tile, channels]: Δ · u
  float* sums = pushes + tile * channels;   // [tile, channels]: c · h

  const int64_t batch = blockIdx.z;
  const int64_t segment = blockIdx.y;
  const int64_t first = blockIdx.x * int64_t{channels};
  const int mine = threadIdx.x / shape.group;  // channel of this thread's group
  const int part = threadIdx.x % shape.group;
  const int64_t channel = first + mine;
  const bool real = channel < shape.channels;

  float rate[N];
  float h[N];
#pragma unroll
  for (int k = 0; k < N; ++k) {
    const int64_t i = part * N + k;
    const bool used = real && i < shape.n;
    rate[k] = used ? in.a[i * shape.channels + channel] * kLog2E : 0.0F;
    h[k] = 0;
    if (used && states.start != nullptr) {
      h[k] = states.start[((batch * shape.segments + segment) * shape.n + i) * shape.channels + channel];
    } else if (used && kEmit && states.initial != nullptr) {
      h[k] = states.initial[(batch * shape.channels + channel) * shape.n + i];
    }
  }
  float total = 0;  // Σ Δ
  const int64_t begin = segment * shape.segment_length;
  const int64_t end = min(begin + shape.segment_length, shape.seq);
  TileInputs<T, kEmit> next;
  next.load(shape, in, batch, first, begin, end);
  for (int64_t t0 = begin; t0 < end; t0 += tile) {
    const int count = static_cast<int>(min(int64_t{tile}, end - t0));
    const TileInputs<T, kEmit> here = next;
    here.put(shape, in, first, t0, end, steps, pushes, b, c);
    __syncthreads();
    next.load(shape, in, batch, first, t0 + tile, end);
    for (int t = 0; t < count; t += kTogether) {
      if (kEmit && states.states != nullptr && (t0 + t) % kScanChunk == 0 && real) {
        float* to = states.states + (batch * shape.chunks + (t0 + t) / kScanChunk) * shape.n * shape.channels + channel;
#pragma unroll
        for (int k = 0; k < N; ++k) {
          if (part * N + k < shape.n) to[(part * N + k) * shape.channels] = h[k];
        }
      }
      float step[kTogether];
      float push[kTogether];
      float4 into[kTogether];
      float4 out[kTogether];
#pragma unroll
      for (int r = 0; r < kTogether; ++r) {
        step[r] = steps[(t + r) * channels + mine];
        push[r] = pushes[(t + r) * channels + mine];
        into[r] = *reinterpret_cast<const float4*>(b + (t + r) * padded + part * N);
        if (kEmit) out[r] = *reinterpret_cast<const float4*>(c + (t + r) * padded + part * N);
      }
      float shares[kTogether];
#pragma unroll
      for (int r = 0; r < kTogether; ++r) {
        const float in_of[N] = {into[r].x, into[r].y, into[r].z, into[r].w};
#pragma unroll
        for (int k = 0; k < N; ++k) h[k] = fmaf(fast_exp2(step[r] * rate[k]), h[k], push[r] * in_of[k]);
        if (kEmit) shares[r] = fmaf(h[0], out[r].x, h[1] * out[r].y) + fmaf(h[2], out[r].z, h[3] * out[r].w);
        if (!kEmit) total += step[r];
      }
      if (kEmit) {
        const float sum = share_sums(shares, part, shape.group);
        if (part < kTogether) sums[(t + part) * channels + mine] = sum;
      }
    }
    __syncthreads();
    // Everything in shared memory except `sums` may be overwritten until the next barrier.
    if (kEmit) here.store_y(shape, in, batch, first, t0, end, sums, states.y);
  }
  if (!real) return;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    const int64_t i = part * N + k;
    if (i >= shape.n) continue;
    if (!kEmit) {
      states.ends[((batch * shape.segments + segment) * shape.n + i) * shape.channels + channel] = h[k];
    } else if (segment == shape.segments - 1) {
      states.last[(batch * shape.channels + channel) * shape.n + i] = h[k];
    }
  }
  if (!kEmit && part == 0) states.totals[(batch * shape.segments + segment) * shape.channels + channel] = total;
}

template <class T, bool kEmit>
void scan(const Device& device, const ScanShape& shape, const ScanInputs<DeviceType<T>>& in,
          const ScanStates<DeviceType<T>>& args) {
  const int channels = shape.block_channels();
  const size_t bytes = sizeof(float) * shape.tile * (3 * channels + 2 * shape.padded());
  const auto kernel = shape.group == kSmallestGroup ? scan_kernel<DeviceType<T>, kEmit, kSmallestGroup>
                                                    : scan_kernel<DeviceType<T>, kEmit, 0>;
  kernel<<<shape.grid(), kScanThreads, bytes, stream_of(device)>>>(shape, in, args);
  check_launch("selective_scan");
}

template <class T>
void forward(const SelectiveScanForward& args) {
  using D = DeviceType<T>;
  const Device& device = args.u.device();
  const ScanShape shape(args.u, args.a.dim(0), lamina::cuda::sm_count(device));
  const ScanInputs<D> in = scan_inputs<T>(args);
  ScanStates<D> w;
  w.initial = device_data<float>(args.initial_state);
  w.states = device_data<float>(args.states);
  w.y = device_data<T>(args.y);
  w.last = device_data<float>(args.last_state);
  if (shape.segments == 1) return scan<T, true>(device, shape, in, w);
  const Shape per_segment{shape.batch, shape.segments, shape.n, shape.channels};
  const Tensor ends = Tensor::empty(per_segment, DType::f32, device);
  const Tensor totals = Tensor::empty({shape.batch, shape.segments, shape.channels}, DType::f32, device);
  w.ends = ends.data<float>();
  w.totals = totals.data<float>();
  scan<T, false>(device, shape, in, w);
  propagate_states(device, shape, in.a, w.totals, w.initial, false, w.ends, nullptr);
  w.start = w.ends;
  scan<T, true>(device, shape, in, w);
}

}  // namespace

void selective_scan_forward(const SelectiveScanForward& args) {
  check_scan_size("selective_scan", args.a.dim(0));
  if (args.u.dim(0) * args.u.dim(2) == 0) return;
  lamina::cuda::visit_floating("selective_scan", args.u.dtype(),
                               [&](auto tag) { forward<typename decltype(tag)::type>(args); });
}

}  // namespace lamina::ops::cuda
