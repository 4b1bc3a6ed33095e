// The state of a channel lies in a group of neighbouring lanes, four numbers a lane. A block takes 128 /
// group channels through a segment of the sequence in tiles: first all threads compute the tile's step sizes into
// shared memory, reading u and delta once and coalesced, then the groups walk through its positions, then all threads
// finish and write y. Where batch · channels alone do not fill the device, the sequence is cut into segments: a first
// launch finds what each adds to a state of zero, a small one carries the states from segment to segment (the decay
// over a segment is exp(a · ΣΔ)), and a last one computes y from the right starts.
#include <algorithm>

#include "lamina/ops/ssm/parts_cuda.h"
#include "lamina/ops/ssm/selective_scan.cuh"

namespace lamina::ops::cuda {
namespace {

/// A segment of a block's channels. Without kEmit only the last state and the sum of the steps are found.
template <class T, bool kEmit>
__global__ void __launch_bounds__(kScanThreads) walk_kernel(ScanShape shape, ScanInputs<T> in, ScanWalk<T> walk) {
  extern __shared__ float memory[];
  const int channels = shape.block_channels();
  constexpr int N = kPerLane;
  const int padded = shape.padded();
  const int tile = shape.tile;
  float* steps = memory;                    // [tile, channels]
  float* pushes = steps + tile * channels;  // [tile, channels]: Δ · u
  float* sums = pushes + tile * channels;   // [tile, channels]: c · h
  float* b = sums + tile * channels;        // [tile, padded]
  float* c = b + tile * padded;             // [tile, padded]

  const int64_t batch = blockIdx.z;
  const int64_t segment = blockIdx.y;
  const int64_t first = blockIdx.x * int64_t{channels};
  const int mine = threadIdx.x / shape.group;  // channel of this thread's group
  const int part = threadIdx.x % shape.group;
  const int64_t channel = first + mine;
  const bool real = channel < shape.channels;

  float a[N];
  float h[N];
#pragma unroll
  for (int k = 0; k < N; ++k) {
    const int64_t i = part * N + k;
    const bool used = real && i < shape.n;
    a[k] = used ? in.a[i * shape.channels + channel] : 0.0F;
    h[k] = 0;
    if (used && walk.start != nullptr) {
      h[k] = walk.start[((batch * shape.segments + segment) * shape.n + i) * shape.channels + channel];
    } else if (used && kEmit && walk.initial != nullptr) {
      h[k] = walk.initial[(batch * shape.channels + channel) * shape.n + i];
    }
  }
  float total = 0;  // ΣΔ
  const int64_t begin = segment * shape.segment_length;
  const int64_t end = min(begin + shape.segment_length, shape.seq);
  for (int64_t t0 = begin; t0 < end; t0 += tile) {
    const int count = static_cast<int>(min(int64_t{tile}, end - t0));
    load_steps(shape, in, batch, first, t0, count, steps, pushes);
    load_mixed(shape, in.b, batch, t0, count, b);
    if (kEmit) load_mixed(shape, in.c, batch, t0, count, c);
    __syncthreads();
    for (int t = 0; t < count; ++t) {
      if (kEmit && walk.states != nullptr && (t0 + t) % kScanChunk == 0 && real) {
        float* to = walk.states + (batch * shape.chunks + (t0 + t) / kScanChunk) * shape.n * shape.channels + channel;
#pragma unroll
        for (int k = 0; k < N; ++k) {
          if (part * N + k < shape.n) to[(part * N + k) * shape.channels] = h[k];
        }
      }
      const float step = steps[t * channels + mine];
      const float push = pushes[t * channels + mine];
      float sum = 0;
#pragma unroll
      for (int k = 0; k < N; ++k) {
        h[k] = fmaf(expf(step * a[k]), h[k], push * b[t * padded + part * N + k]);
        if (kEmit) sum = fmaf(h[k], c[t * padded + part * N + k], sum);
      }
      if (kEmit) {
        sum = group_sum(sum, shape.group);
        if (part == 0) sums[t * channels + mine] = sum;
      } else {
        total += step;
      }
    }
    __syncthreads();
    if (kEmit) store_y(shape, in, batch, first, t0, count, sums, walk.y);
    // The next tile's loads write steps and pushes alone, which nobody reads any more; sums are written behind the
    // next barrier.
  }
  if (!real) return;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    const int64_t i = part * N + k;
    if (i >= shape.n) continue;
    if (!kEmit) {
      walk.ends[((batch * shape.segments + segment) * shape.n + i) * shape.channels + channel] = h[k];
    } else if (segment == shape.segments - 1) {
      walk.last[(batch * shape.channels + channel) * shape.n + i] = h[k];
    }
  }
  if (!kEmit && part == 0) walk.totals[(batch * shape.segments + segment) * shape.channels + channel] = total;
}

template <class T, bool kEmit>
void walk(const Device& device, const ScanShape& shape, const ScanInputs<DeviceType<T>>& in,
          const ScanWalk<DeviceType<T>>& args) {
  const int channels = shape.block_channels();
  const size_t bytes = sizeof(float) * shape.tile * (3 * channels + 2 * shape.padded());
  walk_kernel<DeviceType<T>, kEmit><<<shape.grid(), kScanThreads, bytes, stream_of(device)>>>(shape, in, args);
  check_launch("selective_scan");
}

template <class T>
void forward(const SelectiveScanForward& args) {
  using D = DeviceType<T>;
  const Device& device = args.u.device();
  const ScanShape shape(args.u, args.a.dim(0), lamina::cuda::processors(device));
  const ScanInputs<D> in = scan_inputs<T>(args);
  ScanWalk<D> w;
  w.initial = device_data<float>(args.initial_state);
  w.states = device_data<float>(args.states);
  w.y = device_data<T>(args.y);
  w.last = device_data<float>(args.last_state);
  if (shape.segments == 1) return walk<T, true>(device, shape, in, w);
  const Shape per_segment{shape.batch, shape.segments, shape.n, shape.channels};
  const Tensor ends = Tensor::empty(per_segment, DType::f32, device);
  const Tensor totals = Tensor::empty({shape.batch, shape.segments, shape.channels}, DType::f32, device);
  w.ends = ends.data<float>();
  w.totals = totals.data<float>();
  walk<T, false>(device, shape, in, w);
  carry(device, shape, in.a, w.totals, w.initial, false, w.ends, nullptr);
  w.start = w.ends;
  walk<T, true>(device, shape, in, w);
}

}  // namespace

void selective_scan_forward(const SelectiveScanForward& args) {
  check_scan_size("selective_scan", args.a.dim(0));
  if (args.u.dim(0) * args.u.dim(2) == 0) return;
  lamina::cuda::visit_floating("selective_scan", args.u.dtype(),
                               [&](auto tag) { forward<typename decltype(tag)::type>(args); });
}

}  // namespace lamina::ops::cuda
