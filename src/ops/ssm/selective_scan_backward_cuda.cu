// Work is divided as in the forward kernel. Gradients of the states are propagated back across segments like states
// forward; then a block takes its channels through its segment, chunk by chunk from the last. For the 64 positions of a
// chunk it computes step sizes and gated gradients into shared memory and runs forward from the saved state, keeping
// every eighth state. Then it goes back through eight positions at a time, recomputing their states and decays into
// registers. db and dc sum over channels: the lanes of a warp reduce by exchanging halves until each has one sum, the
// warps of a block are added in order, and the blocks write partial sums that a second kernel adds. da, dd and
// ddelta_bias are summed the same way over batch entries and segments.
#include "lamina/ops/ssm/parts_cuda.h"
#include "lamina/ops/ssm/selective_scan.cuh"
#include "lamina/ops/ssm/selective_scan_kernel.h"

namespace lamina::ops::cuda {
namespace {

using lamina::cuda::fast_exp2;
using lamina::cuda::kLn2;
using lamina::cuda::kLog2E;

constexpr int kChunk = static_cast<int>(kScanChunk);
constexpr int kSub = 8;  // positions whose states are in registers
constexpr int kWarps = kScanThreads / lamina::cuda::kWarp;

template <class T>
struct Back {
  const T* dy;
  const float* dlast;   // [batch, channels, n], or null
  const float* start;   // [batch, segments, n, channels]: gradient after each segment, or null if there is one segment
  const float* states;  // [batch, chunks, n, channels]
  float* ends;          // written by ends_kernel
  float* totals;
  T *du, *ddelta, *dz;     // dz may be null
  float *da, *dd, *dbias;  // [batch · segments, (n,) channels]
  float *db, *dc;          // [channel blocks, batch, seq, n]
  float* dinitial;         // or null
};

/// dy before the gate.
template <class T>
__device__ float ungated(const ScanInputs<T>& in, const T* dy, int64_t at) {
  const float value = to_float(dy[at]);
  return in.z != nullptr ? value * silu_for<T>(to_float(in.z[at])) : value;
}

/// Contribution of a segment to a zero gradient after it, and the sum of its steps.
template <class T, int kGroup>
__global__ void __launch_bounds__(kScanThreads)
    ends_kernel(const __grid_constant__ ScanShape given, ScanInputs<T> in, Back<T> back) {
  extern __shared__ float memory[];
  const ScanShape shape = given.with_group<kGroup>();
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

/// Shared memory of the main kernel.
struct BackMemory {
  float *steps, *us, *dys, *sums;  // [chunk, channels]; steps and dys are overwritten by the gradients of Δ and u
  float *b, *c;                    // [chunk, padded]
  float* kept;                     // [chunk / kSub, threads, kPerLane]: every eighth state
  float* warps;                    // [kWarps, kSub, 2, padded]: db and dc of eight positions

  __device__ BackMemory(const ScanShape& shape, float* memory) {
    const int wide = kChunk * shape.block_channels();
    const int mixed = kChunk * shape.padded();
    kept = memory;
    steps = kept + kChunk / kSub * kScanThreads * kPerLane;
    us = steps + wide;
    dys = us + wide;
    sums = dys + wide;
    b = sums + wide;
    c = b + mixed;
    warps = c + mixed;
  }
  static size_t bytes(const ScanShape& shape) {
    return sizeof(float) * (kChunk / kSub * kScanThreads * kPerLane + 4 * kChunk * shape.block_channels() +
                            2 * kChunk * shape.padded() + kWarps * kSub * 2 * shape.padded());
  }
};

/// Loads the inputs of a chunk; zeros for missing positions and channels, which have no effect.
template <class T>
__device__ void load_chunk(const ScanShape& shape, const ScanInputs<T>& in, const Back<T>& back, const BackMemory& m,
                           int64_t batch, int64_t first, int64_t t0, int count) {
  const int channels = shape.block_channels();
  for (int i = threadIdx.x; i < kChunk * channels; i += kScanThreads) {
    const int64_t ch = first + i % channels;
    float step = 0;
    float u = 0;
    float dy = 0;
    if (ch < shape.channels && i / channels < count) {
      const int64_t at = (batch * shape.seq + t0 + i / channels) * shape.channels + ch;
      step = in.raw_step(at, ch);
      if (in.with_softplus) step = softplus(step);
      u = to_float(in.u[at]);
      dy = ungated(in, back.dy, at);
    }
    m.steps[i] = step;
    m.us[i] = u;
    m.dys[i] = dy;
  }
  const int padded = shape.padded();
  for (int i = threadIdx.x; i < kChunk * padded; i += kScanThreads) {
    const bool real = i / padded < count && i % padded < shape.n;
    const int64_t at = (batch * shape.seq + t0 + i / padded) * shape.n + i % padded;
    m.b[i] = real ? in.b[at] : 0.0F;
    m.c[i] = real ? in.c[at] : 0.0F;
  }
}

/// Writes the gradients of a chunk's inputs from shared memory. A thread sees only one channel and adds to its part of
/// ddelta_bias.
template <class T>
__device__ void store_chunk(const ScanShape& shape, const ScanInputs<T>& in, const Back<T>& back, const BackMemory& m,
                            int64_t batch, int64_t first, int64_t t0, int count, float& dbias) {
  const int channels = shape.block_channels();
  const int64_t ch = first + threadIdx.x % channels;
  if (ch >= shape.channels) return;
  for (int i = threadIdx.x; i < count * channels; i += kScanThreads) {
    const int64_t at = (batch * shape.seq + t0 + i / channels) * shape.channels + ch;
    float dstep = m.steps[i];
    if (in.with_softplus) dstep *= sigmoid(in.raw_step(at, ch));
    dbias += dstep;
    back.ddelta[at] = from_float<T>(dstep);
    back.du[at] = from_float<T>(m.dys[i]);
    if (in.z != nullptr) {
      float sum = m.sums[i];
      if (in.d != nullptr) sum = fmaf(in.d[ch], m.us[i], sum);
      back.dz[at] = from_float<T>(to_float(back.dy[at]) * sum * silu_slope_for<T>(to_float(in.z[at])));
    }
  }
}

/// Sums 2 · kPerLane values over the lanes of a warp that differ only in their channel (lane bits from `group` on).
/// Lanes exchange halves; in the end values[0 … held) are the sums of values `place` and following.
__device__ inline void sum_channels(float (&values)[2 * kPerLane], int group, int& place, int& held) {
  const int lane = threadIdx.x % lamina::cuda::kWarp;
  place = 0;
  held = 2 * kPerLane;
  int step = lamina::cuda::kWarp / 2;
#pragma unroll
  for (int half = kPerLane; half >= 1; half /= 2, step /= 2) {
    if (step < group) break;
    const bool upper = (lane & step) != 0;
#pragma unroll
    for (int k = 0; k < half; ++k) {
      const float sent = upper ? values[k] : values[k + half];
      const float kept = upper ? values[k + half] : values[k];
      values[k] = kept + __shfl_xor_sync(lamina::cuda::kAllLanes, sent, step);
    }
    if (upper) place += half;
    held = half;
  }
  // kSmallestGroup lanes per channel leave at most three bits for channels; the three exchanges cover them.
}

struct Lane {
  int mine, part, warp;
  float rate[kPerLane];  // a · log2(e)
  float dh[kPerLane], da[kPerLane];
  float dd, skip;
};

/// A lane's state elements of one position, loaded at once.
struct LaneNumbers {
  float values[kPerLane];
  __device__ explicit LaneNumbers(const float* from) {
    const float4 four = *reinterpret_cast<const float4*>(from);
    values[0] = four.x, values[1] = four.y, values[2] = four.z, values[3] = four.w;
  }
  __device__ float operator[](int k) const { return values[k]; }
};
static_assert(kPerLane == 4);

/// Backwards through kSub positions of the chunk from t0 on, starting from the state before them.
__device__ inline void sub_back(const ScanShape& shape, const BackMemory& m, int t0, bool with_sums, Lane& lane) {
  const int channels = shape.block_channels();
  const int padded = shape.padded();
  float before[kSub + 1][kPerLane];
  float decays[kSub][kPerLane];
  const LaneNumbers kept(m.kept + (t0 / kSub * kScanThreads + threadIdx.x) * kPerLane);
#pragma unroll
  for (int k = 0; k < kPerLane; ++k) before[0][k] = kept[k];
#pragma unroll
  for (int r = 0; r < kSub; ++r) {
    const int at = (t0 + r) * channels + lane.mine;
    const float step = m.steps[at];
    const float push = step * m.us[at];
    const LaneNumbers b(m.b + (t0 + r) * padded + lane.part * kPerLane);
#pragma unroll
    for (int k = 0; k < kPerLane; ++k) {
      decays[r][k] = fast_exp2(step * lane.rate[k]);
      before[r + 1][k] = fmaf(decays[r][k], before[r][k], push * b[k]);
    }
  }
#pragma unroll
  for (int r = kSub - 1; r >= 0; --r) {
    const int at = (t0 + r) * channels + lane.mine;
    const float step = m.steps[at];
    const float u = m.us[at];
    const float dy = m.dys[at];
    const float push = step * u;
    const LaneNumbers b(m.b + (t0 + r) * padded + lane.part * kPerLane);
    const LaneNumbers c(m.c + (t0 + r) * padded + lane.part * kPerLane);
    float mixed[2 * kPerLane];  // db, then dc
    float pushed = 0;
    float dstep = 0;
    float sum = 0;
#pragma unroll
    for (int k = 0; k < kPerLane; ++k) {
      const float g = fmaf(dy, c[k], lane.dh[k]);
      mixed[k] = g * push;
      mixed[kPerLane + k] = dy * before[r + 1][k];
      pushed = fmaf(g, b[k], pushed);
      sum = fmaf(before[r + 1][k], c[k], sum);
      const float carried = g * decays[r][k];
      lane.dh[k] = carried;
      const float bent = carried * before[r][k];
      dstep = fmaf(bent, lane.rate[k], dstep);
      lane.da[k] = fmaf(bent, step, lane.da[k]);
    }
    pushed = group_sum(pushed, shape.group);
    dstep = group_sum(dstep, shape.group);
    if (with_sums) sum = group_sum(sum, shape.group);
    __syncwarp();  // the other lanes of the group have read the values overwritten here
    if (lane.part == 0) {
      m.dys[at] = fmaf(step, pushed, lane.skip * dy);
      m.steps[at] = fmaf(u, pushed, dstep * kLn2);
      m.sums[at] = sum;
      lane.dd = fmaf(dy, u, lane.dd);
    }
    int place = 0;
    int held = 0;
    sum_channels(mixed, shape.group, place, held);
    float* to = m.warps + (lane.warp * kSub + r) * 2 * padded;
#pragma unroll
    for (int k = 0; k < 2 * kPerLane; ++k) {
      if (k >= held) break;
      const int number = place + k;
      to[number / kPerLane * padded + lane.part * kPerLane + number % kPerLane] = mixed[k];
    }
  }
}

/// Adds db and dc of eight positions over the warps into this block's partial sum.
template <class T>
__device__ void store_mixed(const ScanShape& shape, const Back<T>& back, const BackMemory& m, int64_t batch, int64_t t0,
                            int count) {
  const int padded = shape.padded();
  for (int i = threadIdx.x; i < count * 2 * padded; i += kScanThreads) {
    const int k = i % padded;
    if (k >= shape.n) continue;
    const int row = i / padded;  // position · 2 + (0 for db, 1 for dc)
    float sum = 0;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) sum += m.warps[(warp * kSub * 2 + row) * padded + k];
    float* to = row % 2 == 0 ? back.db : back.dc;
    to[((blockIdx.x * shape.batch + batch) * shape.seq + t0 + row / 2) * shape.n + k] = sum;
  }
}

template <class T, int kGroup>
__global__ void __launch_bounds__(kScanThreads)
    back_kernel(const __grid_constant__ ScanShape given, ScanInputs<T> in, Back<T> back) {
  extern __shared__ __align__(16) float memory[];
  const ScanShape shape = given.with_group<kGroup>();
  const BackMemory m(shape, memory);
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
  const ScanShape shape(args.forward.u, args.forward.a.dim(0), lamina::cuda::processors(device));
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
    carry(device, shape, in.a, back.totals, back.dlast, true, back.ends, back.dinitial);
    back.start = back.ends;
  }
  const size_t bytes = BackMemory::bytes(shape);
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
