// Work is divided as in the forward kernel. The states of a chunk of 64 positions are recomputed from the saved state,
// in two levels: first every eighth state is kept, then eight positions at a time are recomputed into registers. The
// gradients of z and c' are summed per batch entry and segment, then over these in order, in f64.
#include "lamina/ops/ssm/parts_cuda.h"
#include "lamina/ops/ssm/s4d_kernel.h"
#include "lamina/ops/ssm/s4d_scan.cuh"
#include "lamina/ops/ssm/selective_scan_kernel.h"

namespace lamina::ops::cuda {
namespace {

constexpr int kChunk = static_cast<int>(kScanChunk);
constexpr int kSub = 8;

template <class T>
struct Back {
  const T *u, *dy;
  const float* d;  // [channels], or null
  float* dlast;    // [batch, channels, n, 2], or null
  float* start;    // gradient after each segment, or null if there is only one segment
  float* states;
  float* ends;
  T* du;
  float* dz;     // [batch · segments, 2, n, channels]
  float* dgain;  // [batch · segments, 2, n, channels]
  float* dd;     // [batch · segments, channels]
  float* dinitial;
};

/// Backward of one position: grad ← conj(z) · (grad + conj(gain) · dy). Returns the sum of the real parts of grad +
/// conj(gain) · dy.
__device__ inline float pull(const S4dLane& lane, float dy, float2 (&grad)[kPerLane], float2 (&here)[kPerLane]) {
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
__global__ void __launch_bounds__(kScanThreads)
    ends_kernel(ScanShape shape, const S4dDiscreteMode* modes, Back<T> back) {
  const int channels = shape.block_channels();
  const int64_t batch = blockIdx.z;
  const int64_t segment = blockIdx.y;
  const S4dLane lane(shape, modes, blockIdx.x * int64_t{channels});
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

/// Runs backwards through `count` <= kSub positions of the chunk, from t0 on. du replaces dy in shared memory.
__device__ inline void sub_back(const ScanShape& shape, const S4dLane& lane, const float* us, float* dys,
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
    __syncwarp();  // the other lanes have read dy
    if (lane.part != 0) continue;
    sums.dd = fmaf(dy, us[at], sums.dd);
    dys[at] = fmaf(skip, dy, sum);
  }
}

template <class T>
__global__ void __launch_bounds__(kScanThreads)
    back_kernel(ScanShape shape, const S4dDiscreteMode* modes, Back<T> back) {
  extern __shared__ float2 kept[];  // [chunk / kSub, threads, kPerLane]
  const int channels = shape.block_channels();
  float* us = reinterpret_cast<float*>(kept + kChunk / kSub * kScanThreads * kPerLane);  // [chunk, channels]
  float* dys = us + kChunk * channels;
  const int64_t batch = blockIdx.z;
  const int64_t segment = blockIdx.y;
  const int64_t first = blockIdx.x * int64_t{channels};
  const int64_t row = batch * shape.segments + segment;
  const int64_t plane = shape.n * shape.channels;
  const S4dLane lane(shape, modes, first);
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

/// Sums over batch entries and segments, then computes the gradients of the parameters. One warp per channel; its lanes
/// are modes.
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

template <class T>
void backward(const S4dScanBackward& args) {
  using D = DeviceType<T>;
  const S4dScanForward& f = args.forward;
  const Device& device = f.u.device();
  const ScanShape shape(f.u, f.parameters.a_imag.dim(1), lamina::cuda::sm_count(device));
  const Tensor held = s4d_discretise(f.parameters, shape, device);
  const auto* modes = reinterpret_cast<const S4dDiscreteMode*>(held.data<float>());
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
    check_launch(kS4dOp);
    s4d_propagate_states(device, shape, f.parameters, modes, back.dlast, true, back.ends, back.dinitial);
    back.start = back.ends;
  }
  const size_t bytes = sizeof(float2) * kChunk / kSub * kScanThreads * kPerLane +
                       sizeof(float) * 2 * kChunk * static_cast<size_t>(shape.block_channels());
  LAMINA_CUDA(
      cudaFuncSetAttribute(back_kernel<D>, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
      kS4dOp);
  back_kernel<D><<<shape.grid(), kScanThreads, bytes, stream>>>(shape, modes, back);
  check_launch(kS4dOp);
  const int blocks = lamina::cuda::blocks_for(shape.channels * lamina::cuda::kWarp, kScanThreads);
  finish_kernel<<<blocks, kScanThreads, 0, stream>>>(S4dPointers(f.parameters), back.dz, back.dgain, rows,
                                                     shape.channels, S4dPointers(args.grads));
  check_launch(kS4dOp);
  add_parts(kS4dOp, back.dd, rows, shape.channels, args.dd);
}

}  // namespace

void s4d_scan_backward(const S4dScanBackward& args) {
  check_scan_size(kS4dOp, args.forward.parameters.a_imag.dim(1));
  if (args.forward.u.numel() == 0) {  // the caller then returns zeros as parameter gradients
    clear(kS4dOp, args.dd);
    clear(kS4dOp, args.dinitial_state);
    if (args.dinitial_state.defined() && args.dlast_state.defined()) {
      Tensor target = args.dinitial_state;
      target.copy_(args.dlast_state);
    }
    return;
  }
  lamina::cuda::visit_floating(kS4dOp, args.dy.dtype(),
                               [&](auto tag) { backward<typename decltype(tag)::type>(args); });
}

}  // namespace lamina::ops::cuda
