// Work is divided as in the forward kernel. The gradients of the states are first propagated backwards across segments,
// as forward propagates states. Then a block takes its channels through its segment, from the last chunk to the first.
// For the 64 positions of a chunk it computes step sizes and gated gradients into shared memory, runs forward from the
// saved state and keeps every eighth state. Then it runs backwards through eight positions at a time, recomputing their
// states and decays into registers.
//
// db and dc are sums over channels. The lanes of a warp reduce them by exchanging halves until each lane has one sum. A
// block adds its warps in order. The blocks write partial sums, which a second kernel adds. da, dd and ddelta_bias are
// summed in the same way over batch entries and segments.
#include "lamina/ops/ssm/selective_scan_backward.cuh"

#include "lamina/ops/ssm/parts_cuda.h"
#include "lamina/ops/ssm/selective_scan_kernel.h"

namespace lamina::ops::cuda {
namespace {

using namespace scan_backward;  // NOLINT: kernel helpers

/// Computes, for each segment, its contribution to a zero gradient after it, and the sum of its steps Δ.
template <class T, int kGroup>
__global__ void __launch_bounds__(kScanThreads)
    ends_kernel(const __grid_constant__ ScanShape given, ScanInputs<T> in, Back<T> back) {
  extern __shared__ float memory[];
  const ScanShape shape = given.with_static_group<kGroup>();
  const int channels = shape.block_channels();
  const int padded = shape.padded();
  const int tile = shape.tile;
  float* steps = memory;                 // [tile, channels]
  float* dys = steps + tile * channels;  // [tile, channels]
  float* c = dys + tile * channels;      // [tile, padded]
  const int64_t batch = blockIdx.z;
  const int64_t segment = blockIdx.y;
  const int64_t first = blockIdx.x * int64_t{channels};
  const int mine = threadIdx.x / shape.group;
  const int part = threadIdx.x % shape.group;
  const int64_t channel = first + mine;
  const bool real = channel < shape.channels;
  float rate[kPerLane];
  float dh[kPerLane] = {};
#pragma unroll
  for (int k = 0; k < kPerLane; ++k) {
    const int64_t i = part * kPerLane + k;
    rate[k] = real && i < shape.n ? in.a[i * shape.channels + channel] * kLog2E : 0.0F;
  }
  float total = 0;
  const int64_t begin = segment * shape.segment_length;
  const int64_t end = min(begin + shape.segment_length, shape.seq);
  for (int64_t t0 = begin + (end - begin - 1) / tile * tile; t0 >= begin; t0 -= tile) {
    const int count = static_cast<int>(min(int64_t{tile}, end - t0));
    for (int i = threadIdx.x; i < count * channels; i += kScanThreads) {
      const int64_t ch = first + i % channels;
      float step = 0;
      float dy = 0;
      if (ch < shape.channels) {
        const int64_t at = (batch * shape.seq + t0 + i / channels) * shape.channels + ch;
        step = in.raw_step(at, ch);
        if (in.with_softplus) step = softplus(step);
        dy = ungated(in, back.dy, at);
      }
      steps[i] = step;
      dys[i] = dy;
    }
    load_mixed(shape, in.c, batch, t0, count, c);
    __syncthreads();
    for (int t = count - 1; t >= 0; --t) {
      const float step = steps[t * channels + mine];
      const float dy = dys[t * channels + mine];
#pragma unroll
      for (int k = 0; k < kPerLane; ++k) {
        dh[k] = fast_exp2(step * rate[k]) * fmaf(dy, c[t * padded + part * kPerLane + k], dh[k]);
      }
      total += step;
    }
    __syncthreads();
  }
  if (!real) return;
#pragma unroll
  for (int k = 0; k < kPerLane; ++k) {
    const int64_t i = part * kPerLane + k;
    if (i < shape.n) back.ends[((batch * shape.segments + segment) * shape.n + i) * shape.channels + channel] = dh[k];
  }
  if (part == 0) back.totals[(batch * shape.segments + segment) * shape.channels + channel] = total;
}

template <class T, int kGroup>
__global__ void __launch_bounds__(kScanThreads)
    back_kernel(const __grid_constant__ ScanShape given, ScanInputs<T> in, Back<T> back) {
  extern __shared__ __align__(16) float memory[];
  const ScanShape shape = given.with_static_group<kGroup>();
  const BackwardMemory m(shape, memory);
  const int channels = shape.block_channels();
  const int padded = shape.padded();
  const int64_t batch = blockIdx.z;
  const int64_t segment = blockIdx.y;
  const int64_t first = blockIdx.x * int64_t{channels};
  Lane lane;
  lane.mine = threadIdx.x / shape.group;
  lane.part = threadIdx.x % shape.group;
  lane.warp = threadIdx.x / lamina::cuda::kWarp;
  lane.dd = 0;
  const int64_t channel = first + lane.mine;
  const bool real = channel < shape.channels;
  lane.skip = real && in.d != nullptr ? in.d[channel] : 0.0F;
#pragma unroll
  for (int k = 0; k < kPerLane; ++k) {
    const int64_t i = lane.part * kPerLane + k;
    const bool used = real && i < shape.n;
    lane.rate[k] = used ? in.a[i * shape.channels + channel] * kLog2E : 0.0F;
    lane.da[k] = 0;
    lane.dh[k] = 0;
    if (used && back.start != nullptr) {
      lane.dh[k] = back.start[((batch * shape.segments + segment) * shape.n + i) * shape.channels + channel];
    } else if (used && back.dlast != nullptr) {
      lane.dh[k] = back.dlast[(batch * shape.channels + channel) * shape.n + i];
    }
  }
  float dbias = 0;
  const int64_t begin = segment * shape.segment_length;
  const int64_t end = min(begin + shape.segment_length, shape.seq);
  for (int64_t chunk = (end - 1) / kChunk; chunk * kChunk >= begin; --chunk) {
    const int64_t t0 = chunk * kChunk;
    const int count = static_cast<int>(min(int64_t{kChunk}, end - t0));
    load_chunk(shape, in, back, m, batch, first, t0, count);
    __syncthreads();
    float h[kPerLane];
    const float* saved = back.states + (batch * shape.chunks + chunk) * shape.n * shape.channels + channel;
#pragma unroll
    for (int k = 0; k < kPerLane; ++k) {
      const int64_t i = lane.part * kPerLane + k;
      h[k] = real && i < shape.n ? saved[i * shape.channels] : 0.0F;
    }
    for (int t0_of_sub = 0; t0_of_sub < count; t0_of_sub += kSub) {
      *reinterpret_cast<float4*>(m.kept + (t0_of_sub / kSub * kScanThreads + threadIdx.x) * kPerLane) =
          make_float4(h[0], h[1], h[2], h[3]);
      if (t0_of_sub + kSub >= count) break;  // later positions do not exist
#pragma unroll
      for (int r = 0; r < kSub; ++r) {
        const int t = t0_of_sub + r;
        const float step = m.steps[t * channels + lane.mine];
        const float push = step * m.us[t * channels + lane.mine];
        const LaneNumbers b(m.b + t * padded + lane.part * kPerLane);
#pragma unroll
        for (int k = 0; k < kPerLane; ++k) h[k] = fmaf(fast_exp2(step * lane.rate[k]), h[k], push * b[k]);
      }
    }
    for (int s0 = (count - 1) / kSub * kSub; s0 >= 0; s0 -= kSub) {
      const int sub = min(kSub, count - s0);
      sub_back(shape, m, s0, in.z != nullptr, lane);
      __syncthreads();
      store_mixed(shape, back, m, batch, t0 + s0, sub);
      __syncthreads();
    }
    store_chunk(shape, in, back, m, batch, first, t0, count, dbias);
    __syncthreads();
  }
  // Threads i, i + channels, … hold parts of one channel's ddelta_bias.
  m.steps[threadIdx.x] = dbias;
  __syncthreads();
  const int64_t share = batch * shape.segments + segment;
  if (threadIdx.x < channels && first + threadIdx.x < shape.channels) {
    float sum = 0;
    for (int i = threadIdx.x; i < kScanThreads; i += channels) sum += m.steps[i];
    back.dbias[share * shape.channels + first + threadIdx.x] = sum;
  }
  if (!real) return;
  if (lane.part == 0) back.dd[share * shape.channels + channel] = lane.dd;
#pragma unroll
  for (int k = 0; k < kPerLane; ++k) {
    const int64_t i = lane.part * kPerLane + k;
    if (i >= shape.n) continue;
    back.da[(share * shape.n + i) * shape.channels + channel] = lane.da[k];
    if (back.start == nullptr && back.dinitial != nullptr) {
      back.dinitial[(batch * shape.channels + channel) * shape.n + i] = lane.dh[k];
    }
  }
}

template <class T>
void backward(const SelectiveScanBackward& args) {
  using D = DeviceType<T>;
  constexpr const char* kOp = "selective_scan";
  const Device& device = args.forward.u.device();
  const ScanShape shape(args.forward.u, args.forward.a.dim(0), lamina::cuda::sm_count(device));
  const ScanInputs<D> in = scan_inputs<T>(args.forward);
  const auto floats = [&](const Shape& extents) { return Tensor::empty(extents, DType::f32, device); };
  const int64_t shares = shape.batch * shape.segments;
  const Tensor da = floats({shares, shape.n, shape.channels});
  const Tensor dd = floats({shares, shape.channels});
  const Tensor dbias = floats({shares, shape.channels});
  const Tensor db = floats({shape.channel_blocks(), shape.batch, shape.seq, shape.n});
  const Tensor dc = floats(db.shape());
  Back<D> back{};
  back.dy = device_data<T>(args.dy);
  back.dlast = device_data<float>(args.dlast_state);
  back.states = device_data<float>(args.forward.states);
  back.du = device_data<T>(args.du);
  back.ddelta = device_data<T>(args.ddelta);
  back.dz = device_data<T>(args.dz);
  back.da = da.data<float>();
  back.dd = dd.data<float>();
  back.dbias = dbias.data<float>();
  back.db = db.data<float>();
  back.dc = dc.data<float>();
  back.dinitial = device_data<float>(args.dinitial_state);
  const bool known = shape.group == kSmallestGroup;
  Tensor ends;
  Tensor totals;
  if (shape.segments > 1) {
    ends = floats({shape.batch, shape.segments, shape.n, shape.channels});
    totals = floats({shape.batch, shape.segments, shape.channels});
    back.ends = ends.data<float>();
    back.totals = totals.data<float>();
    const size_t bytes = sizeof(float) * shape.tile * (2 * shape.block_channels() + shape.padded());
    const auto kernel = known ? ends_kernel<D, kSmallestGroup> : ends_kernel<D, 0>;
    kernel<<<shape.grid(), kScanThreads, bytes, stream_of(device)>>>(shape, in, back);
    check_launch(kOp);
    propagate_states(device, shape, in.a, back.totals, back.dlast, true, back.ends, back.dinitial);
    back.start = back.ends;
  }
  const size_t bytes = BackwardMemory::bytes(shape);
  const auto kernel = known ? back_kernel<D, kSmallestGroup> : back_kernel<D, 0>;
  LAMINA_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)), kOp);
  kernel<<<shape.grid(), kScanThreads, bytes, stream_of(device)>>>(shape, in, back);
  check_launch(kOp);
  const auto add = [&](const Tensor& parts, const Tensor& total) {
    add_parts(kOp, parts.data<float>(), parts.dim(0), total.defined() ? total.numel() : 0, total);
  };
  add(da, args.da);
  add(dd, args.dd);
  add(dbias, args.ddelta_bias);
  add(db, args.db);
  add(dc, args.dc);
}

}  // namespace

void selective_scan_backward(const SelectiveScanBackward& args) {
  constexpr const char* kOp = "selective_scan";
  check_scan_size(kOp, args.forward.a.dim(0));
  if (args.forward.u.numel() == 0) {
    for (const Tensor& grad : {args.da, args.dd, args.ddelta_bias, args.dinitial_state}) clear(kOp, grad);
    for (const Tensor& grad : {args.db, args.dc}) clear(kOp, grad);
    if (args.dinitial_state.defined() && args.dlast_state.defined()) {
      Tensor target = args.dinitial_state;
      target.copy_(args.dlast_state);
    }
    return;
  }
  lamina::cuda::visit_floating(kOp, args.dy.dtype(), [&](auto tag) { backward<typename decltype(tag)::type>(args); });
}

}  // namespace lamina::ops::cuda
