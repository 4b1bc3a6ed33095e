// The scan for the cases that ssd_fused_cuda.cu does not support. All chunks run in parallel, as f32 products of 64 ×
// 64 tiles, in these steps: the step sizes and their running sums (in f64, because a decay within a chunk is the
// exponential of a small difference); c·b, which the heads of a group share; the contribution of each chunk to the
// state; a small kernel that propagates the states across chunks; and y = ((c·b) ∘ decay) · Δx + exp(s) · c · Hᵀ + d ·
// x, whose left operand is computed while it is loaded.
//
// The step for decoding reads and writes the state once, with one warp per row.
#include "lamina/ops/ssm/ssd_scan.cuh"
#include "lamina/ops/ssm/ssd_scan_kernel.h"

namespace lamina::ops::cuda {
namespace {

constexpr const char* kOp = "ssd_scan";
constexpr int kThreads = 128;

/// Computes SsdSteps. One thread per chunk and head; adjacent threads have adjacent heads, so reads of dt are
/// coalesced.
template <class T>
__global__ void steps_kernel(SsdShape shape, SsdStepSize size, const T* dt, const float* a, float* buffers,
                             float* whole) {
  const int64_t item = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  if (item >= shape.batch * shape.chunks * shape.heads) return;
  const SsdChunkAt at = shape.of_head(item);
  const int64_t all = shape.batch * shape.heads * shape.seq;
  float* step = buffers + shape.position_at(at);
  float* high = step + all;
  float* low = high + all;
  float* from_start = low + all;
  float* to_end = from_start + all;
  const double rate = a[at.head];
  double sum = 0;
  for (int64_t t = 0; t < at.q; ++t) {
    const float raw = size.raw(to_float(dt[(at.entry * shape.seq + at.first + t) * shape.heads + at.head]), at.head);
    const float delta = size.clamped(size.soft(raw));
    sum += static_cast<double>(delta) * rate;
    step[t] = delta;
    high[t] = static_cast<float>(sum);
    low[t] = static_cast<float>(sum - static_cast<double>(high[t]));
    from_start[t] = static_cast<float>(exp(sum));
  }
  whole[item] = static_cast<float>(exp(sum));
  for (int64_t t = 0; t < at.q; ++t) {
    to_end[t] = expf(static_cast<float>(sum - (static_cast<double>(high[t]) + static_cast<double>(low[t]))));
  }
}

__global__ void __launch_bounds__(kTileThreads)
    gram_kernel(SsdShape shape, const float* b, const float* c, float* gram) {
  __shared__ TileMemory memory;
  if (blockIdx.z > blockIdx.y) return;
  const SsdChunkAt at = shape.of_group(blockIdx.x);
  const int64_t t0 = blockIdx.y * int64_t{kTile};
  const int64_t s0 = blockIdx.z * int64_t{kTile};
  const int64_t stride = shape.mixed_stride();
  const float* rows = c + shape.mixed_at(at);
  const float* columns = b + shape.mixed_at(at);
  float acc[4][4] = {};
  tile_product<true, true>(
      shape.n, [&](int i, int64_t k) { return t0 + i < at.q ? rows[(t0 + i) * stride + k] : 0.0F; },
      [&](int64_t k, int j) { return s0 + j < at.q ? columns[(s0 + j) * stride + k] : 0.0F; }, memory, acc);
  float* out = gram + shape.gram_at(at);
  for (int r = 0; r < 4; ++r) {
    const int64_t t = t0 + tile_row() + r;
    for (int col = 0; col < 4; ++col) {
      const int64_t s = s0 + tile_column() + col;
      if (t < at.q && s < at.q) out[t * shape.size + s] = acc[r][col];
    }
  }
}

/// Computes the contribution of a chunk to the state: Σ_s exp(s_end − s_s) Δx_s ⊗ b_s.
template <class T>
__global__ void __launch_bounds__(kTileThreads)
    chunk_state_kernel(SsdShape shape, SsdSteps steps, const T* x, const float* b, float* states) {
  __shared__ TileMemory memory;
  const SsdChunkAt at = shape.of_head(blockIdx.x);
  const int64_t p0 = blockIdx.y * int64_t{kTile};
  const int64_t n0 = blockIdx.z * int64_t{kTile};
  const T* rows = x + shape.x_at(at);
  const float* mixed = b + shape.mixed_at(at);
  const int64_t position = shape.position_at(at);
  float acc[4][4] = {};
  tile_product<false, false>(
      at.q,
      [&](int i, int64_t s) {
        if (p0 + i >= shape.p) return 0.0F;
        return steps.to_end[position + s] * steps.step[position + s] * to_float(rows[s * shape.x_stride() + p0 + i]);
      },
      [&](int64_t s, int j) { return n0 + j < shape.n ? mixed[s * shape.mixed_stride() + n0 + j] : 0.0F; }, memory,
      acc);
  float* out = states + shape.state_at(at);
  for (int r = 0; r < 4; ++r) {
    const int64_t i = p0 + tile_row() + r;
    for (int c = 0; c < 4; ++c) {
      const int64_t j = n0 + tile_column() + c;
      if (i < shape.p && j < shape.n) out[i * shape.n + j] = acc[r][c];
    }
  }
}

__global__ void carry_kernel(SsdShape shape, const float* whole, bool backwards, float* at, float* state) {
  constexpr int kTogether = 8;  // chunks that are loaded before the first is overwritten
  const int64_t extent = shape.p * shape.n;
  const int64_t item = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  if (item >= shape.batch * shape.heads * extent) return;
  const int64_t place = item / extent;  // [batch, heads]
  const int64_t head = place % shape.heads;
  const int64_t entry = place / shape.heads;
  const auto chunk_of = [&](int64_t k) {
    return (entry * shape.chunks + (backwards ? shape.chunks - 1 - k : k)) * shape.heads + head;
  };
  const int64_t within = item - place * extent;
  float carried = state[item];
  for (int64_t first = 0; first < shape.chunks; first += kTogether) {
    float added[kTogether];
    float decay[kTogether];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      if (first + i >= shape.chunks) break;
      const int64_t chunk = chunk_of(first + i);
      added[i] = at[chunk * extent + within];
      decay[i] = whole[chunk];
    }
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      if (first + i >= shape.chunks) break;
      at[chunk_of(first + i) * extent + within] = carried;
      carried = fmaf(decay[i], carried, added[i]);
    }
  }
  state[item] = carried;
}

template <class T>
__global__ void __launch_bounds__(kTileThreads)
    output_kernel(SsdShape shape, SsdSteps steps, const T* x, const float* c, const float* gram, const float* states,
                  const float* d, T* y) {
  __shared__ TileMemory memory;
  const SsdChunkAt at = shape.of_head(blockIdx.x);
  const int64_t t0 = blockIdx.y * int64_t{kTile};
  const int64_t p0 = blockIdx.z * int64_t{kTile};
  if (t0 >= at.q) return;
  const int64_t position = shape.position_at(at);
  const T* rows = x + shape.x_at(at);
  const float* pair = gram + shape.gram_at(at);
  float acc[4][4] = {};
  tile_product<true, false>(
      min(at.q, t0 + kTile),
      [&](int i, int64_t s) {
        const int64_t t = t0 + i;
        return t < at.q && s <= t ? pair[t * shape.size + s] * steps.decay(position, t, s) : 0.0F;
      },
      [&](int64_t s, int j) {
        return p0 + j < shape.p ? steps.step[position + s] * to_float(rows[s * shape.x_stride() + p0 + j]) : 0.0F;
      },
      memory, acc);
  const float* mixed = c + shape.mixed_at(at);
  const float* state = states + shape.state_at(at);
  tile_product<true, true>(
      shape.n,
      [&](int i, int64_t k) {
        const int64_t t = t0 + i;
        return t < at.q ? steps.from_start[position + t] * mixed[t * shape.mixed_stride() + k] : 0.0F;
      },
      [&](int64_t k, int j) { return p0 + j < shape.p ? state[(p0 + j) * shape.n + k] : 0.0F; }, memory, acc);
  for (int r = 0; r < 4; ++r) {
    const int64_t t = t0 + tile_row() + r;
    if (t >= at.q) break;
    for (int col = 0; col < 4; ++col) {
      const int64_t j = p0 + tile_column() + col;
      if (j >= shape.p) break;
      const int64_t place = t * shape.x_stride() + j;
      const float value = d != nullptr ? fmaf(d[at.head], to_float(rows[place]), acc[r][col]) : acc[r][col];
      y[shape.x_at(at) + place] = from_float<T>(value);
    }
  }
}

template <class T>
void forward(const SsdForward& args) {
  using D = DeviceType<T>;
  const SsdShape shape(args);
  const Device& device = args.x.device();
  const cudaStream_t stream = stream_of(device);
  const SsdStepBuffers buffers = ssd_steps(args);
  const SsdSteps steps = buffers.steps();
  const Tensor gram = ssd_gram(args);
  Tensor states = args.states;
  if (!states.defined()) {
    states = Tensor::empty({shape.batch, shape.chunks, shape.heads, shape.p, shape.n}, DType::f32, device);
  }
  const D* x = device_data<T>(args.x);
  if (shape.n > 0) {
    chunk_state_kernel<D><<<shape.grid(shape.heads, shape.p, shape.n), kTileThreads, 0, stream>>>(
        shape, steps, x, args.b.data<float>(), states.data<float>());
    check_launch(kOp);
    ssd_propagate_states(shape, device, steps.whole, false, states.data<float>(), args.state.data<float>());
  }
  output_kernel<D><<<shape.grid(shape.heads, shape.size, shape.p), kTileThreads, 0, stream>>>(
      shape, steps, x, args.c.data<float>(), gram.data<float>(), states.data<float>(), device_data<float>(args.d),
      device_data<T>(args.y));
  check_launch(kOp);
}

__global__ void step_kernel(SsdStepSize size, const float* x, const float* dt, const float* a, const float* b,
                            const float* c, const float* d, float* state, float* y, int64_t rows, int64_t heads,
                            int64_t p, int64_t groups, int64_t n) {
  const int64_t row = (blockIdx.x * int64_t{kThreads} + threadIdx.x) / lamina::cuda::kWarp;  // [batch, heads, p]
  const int lane = threadIdx.x % lamina::cuda::kWarp;
  if (row >= rows) return;
  const int64_t at = row / p;  // [batch, heads]
  const int64_t head = at % heads;
  const int64_t mixed = (at / heads * groups + head / (heads / groups)) * n;
  const float delta = size.clamped(size.soft(size.raw(dt[at], head)));
  const float decay = expf(delta * a[head]);
  const float push = delta * x[row];
  float sum = 0;
  for (int64_t j = lane; j < n; j += lamina::cuda::kWarp) {
    float& h = state[row * n + j];
    h = fmaf(decay, h, push * b[mixed + j]);
    sum = fmaf(h, c[mixed + j], sum);
  }
  sum = lamina::cuda::warp_sum(sum);
  if (lane == 0) y[row] = d != nullptr ? fmaf(d[head], x[row], sum) : sum;
}

}  // namespace

SsdStepBuffers ssd_steps(const SsdForward& args) {
  const SsdShape shape(args);
  const Device& device = args.x.device();
  SsdStepBuffers buffers{Tensor::empty({5, shape.batch, shape.heads, shape.seq}, DType::f32, device),
                         Tensor::empty({shape.batch, shape.chunks, shape.heads}, DType::f32, device)};
  const SsdStepSize size(args.dt_bias, args.options);
  lamina::cuda::visit_floating(kOp, args.dt.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const int blocks = lamina::cuda::blocks_for(buffers.whole.numel(), kThreads);
    steps_kernel<DeviceType<T>>
        <<<blocks, kThreads, 0, stream_of(device)>>>(shape, size, device_data<T>(args.dt), args.a.data<float>(),
                                                     buffers.positions.data<float>(), buffers.whole.data<float>());
    check_launch(kOp);
  });
  return buffers;
}

Tensor ssd_gram(const SsdForward& args) {
  const SsdShape shape(args);
  Tensor gram =
      Tensor::empty({shape.batch, shape.chunks, shape.groups, shape.size, shape.size}, DType::f32, args.x.device());
  gram_kernel<<<shape.grid(shape.groups, shape.size, shape.size), kTileThreads, 0, stream_of(args.x.device())>>>(
      shape, args.b.data<float>(), args.c.data<float>(), gram.data<float>());
  check_launch(kOp);
  return gram;
}

void ssd_propagate_states(const SsdShape& shape, const Device& device, const float* whole, bool backwards, float* at,
                          float* state) {
  const int64_t items = shape.batch * shape.heads * shape.p * shape.n;
  if (items == 0) return;
  carry_kernel<<<lamina::cuda::blocks_for(items, kThreads), kThreads, 0, stream_of(device)>>>(shape, whole, backwards,
                                                                                              at, state);
  check_launch(kOp);
}

void ssd_forward(const SsdForward& args) {
  if (args.x.numel() == 0 || ssd_fused(args)) return;
  lamina::cuda::visit_floating(kOp, args.x.dtype(), [&](auto tag) { forward<typename decltype(tag)::type>(args); });
}

void ssd_step(const SsdStep& args) {
  const int64_t rows = args.x.numel();
  if (rows == 0) return;
  const int blocks = lamina::cuda::blocks_for(rows * lamina::cuda::kWarp, kThreads);
  step_kernel<<<blocks, kThreads, 0, stream_of(args.x.device())>>>(
      SsdStepSize(args.dt_bias, args.options), args.x.data<float>(), args.dt.data<float>(), args.a.data<float>(),
      args.b.data<float>(), args.c.data<float>(), device_data<float>(args.d), args.state.data<float>(),
      args.y.data<float>(), rows, args.x.dim(1), args.x.dim(2), args.b.dim(1), args.b.dim(2));
  check_launch("ssd_step");
}

}  // namespace lamina::ops::cuda
