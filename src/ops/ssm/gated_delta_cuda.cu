// A block handles one value head of one batch entry. A thread owns columns of its state, which are independent of each
// other, and runs over the sequence. The state stays in global memory: the threads of a warp access adjacent numbers,
// and the L1 cache holds them.
//
// Backward saves the state before every chunk, then goes through the chunks from the last to the first: it recomputes
// the states of a chunk and runs backwards over them. Warps compute the sums over columns (the gradients of q, k, g and
// beta). The gradients of q and k are then summed over the value heads that share them, in order.
#include <algorithm>

#include "lamina/ops/ssm/gated_delta_kernel.h"
#include "lamina/tensor/cuda/kernel.cuh"

namespace lamina::ops::cuda {
namespace {

using lamina::cuda::check_launch;
using lamina::cuda::device_data;
using lamina::cuda::stream_of;

constexpr const char* kDeltaOp = "gated_delta";
constexpr int kDeltaThreads = 128;
constexpr int kDeltaWarps = kDeltaThreads / 32;

struct DeltaInputs {
  const float *q, *k, *v, *g, *beta;
  int64_t seq, key_heads, heads, d_k, d_v;

  __device__ int64_t gate_at(int64_t t) const { return (blockIdx.x / heads * seq + t) * heads + blockIdx.x % heads; }
  __device__ int64_t value_at(int64_t t) const { return gate_at(t) * d_v; }
  __device__ int64_t key_at(int64_t t) const {
    return ((blockIdx.x / heads * seq + t) * key_heads + blockIdx.x % heads / (heads / key_heads)) * d_k;
  }
  /// Offset in gradients of q and k that are stored per value head.
  __device__ int64_t own_key_at(int64_t t) const { return gate_at(t) * d_k; }
  __device__ int64_t state_at() const { return blockIdx.x * d_k * d_v; }
};

template <class Args>
DeltaInputs inputs_of(const Args& a) {
  return {device_data<float>(a.q),
          device_data<float>(a.k),
          device_data<float>(a.v),
          device_data<float>(a.g),
          device_data<float>(a.beta),
          a.q.dim(1),
          a.q.dim(2),
          a.v.dim(2),
          a.q.dim(3),
          a.v.dim(3)};
}

/// Advances column j of the state by position t; returns S'ᵀ k. If `decayed` is given, stores S' there.
__device__ float move_column(const DeltaInputs& in, int64_t t, int64_t j, float* state, float* decayed) {
  const float* k = in.k + in.key_at(t);
  const float decay = expf(in.g[in.gate_at(t)]);
  float held = 0.0F;
  for (int64_t i = 0; i < in.d_k; ++i) {
    const float s = state[i * in.d_v + j] * decay;
    state[i * in.d_v + j] = s;
    if (decayed != nullptr) decayed[i * in.d_v + j] = s;
    held = fmaf(s, k[i], held);
  }
  const float u = in.beta[in.gate_at(t)] * (in.v[in.value_at(t) + j] - held);
  for (int64_t i = 0; i < in.d_k; ++i) state[i * in.d_v + j] = fmaf(k[i], u, state[i * in.d_v + j]);
  return held;
}

__global__ void forward_kernel(DeltaInputs in, float* y, float* states) {
  float* state = states + in.state_at();
  for (int64_t j = threadIdx.x; j < in.d_v; j += kDeltaThreads) {
    for (int64_t t = 0; t < in.seq; ++t) {
      move_column(in, t, j, state, nullptr);
      const float* q = in.q + in.key_at(t);
      float sum = 0.0F;
      for (int64_t i = 0; i < in.d_k; ++i) sum = fmaf(state[i * in.d_v + j], q[i], sum);
      y[in.value_at(t) + j] = sum;
    }
  }
}

/// A block's buffers: the state and the states before each chunk [1 + chunks, d_k, d_v]; S' [chunk, d_k, d_v] and S'ᵀ k
/// [chunk, d_v] of one chunk; du [d_v].
struct DeltaScratch {
  float* all;
  int64_t chunk, chunks;

  __host__ __device__ int64_t size(int64_t d_k, int64_t d_v) const {
    return ((1 + chunks + chunk) * d_k + chunk + 1) * d_v;
  }
};

struct DeltaGradients {
  const float *initial, *dy;
  float *dstate, *dq, *dk, *dv, *dg, *dbeta;  // dq, dk [batch, seq, heads, d_k]: per value head
};

__device__ float warp_total(float value) {
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(lamina::cuda::kAllLanes, value, step);
  return value;
}

/// Sums over the columns at position t: the gradients of q, k, g and beta. du must be complete.
__device__ void sum_columns(const DeltaInputs& in, const DeltaGradients& out, int64_t t, const float* decayed,
                            const float* held, const float* du, float* parts) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const float beta = in.beta[in.gate_at(t)];
  const float* k = in.k + in.key_at(t);
  const float* v = in.v + in.value_at(t);
  const float* dy = out.dy + in.value_at(t);
  const float* grad = out.dstate + in.state_at();
  float dg = 0.0F;
  for (int64_t i = warp; i < in.d_k; i += kDeltaWarps) {
    float dq = 0.0F;
    float dk = 0.0F;
    for (int64_t j = lane; j < in.d_v; j += 32) {
      const float u = beta * (v[j] - held[j]);
      const float s = decayed[i * in.d_v + j];
      const float ds = grad[i * in.d_v + j];
      dq = fmaf(fmaf(k[i], u, s), dy[j], dq);
      dk = fmaf(ds, u, fmaf(-s, beta * du[j], dk));
      dg = fmaf(fmaf(-k[i], beta * du[j], ds), s, dg);
    }
    dq = warp_total(dq);
    dk = warp_total(dk);
    if (lane == 0) {
      out.dq[in.own_key_at(t) + i] = dq;
      out.dk[in.own_key_at(t) + i] = dk;
    }
  }
  dg = warp_total(dg);
  if (lane == 0) parts[warp] = dg;
  if (warp == 0) {
    float dbeta = 0.0F;
    for (int64_t j = lane; j < in.d_v; j += 32) dbeta = fmaf(du[j], v[j] - held[j], dbeta);
    dbeta = warp_total(dbeta);
    if (lane == 0) out.dbeta[in.gate_at(t)] = dbeta;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    float sum = 0.0F;
    for (int i = 0; i < kDeltaWarps; ++i) sum += parts[i];
    out.dg[in.gate_at(t)] = sum;
  }
}

__global__ void backward_kernel(DeltaInputs in, DeltaGradients out, DeltaScratch scratch) {
  __shared__ float parts[kDeltaWarps];
  const int64_t size = in.d_k * in.d_v;
  float* state = scratch.all + blockIdx.x * scratch.size(in.d_k, in.d_v);
  float* starts = state + size;
  float* decayed = starts + scratch.chunks * size;
  float* held = decayed + scratch.chunk * size;
  float* du = held + scratch.chunk * in.d_v;
  float* grad = out.dstate + in.state_at();
  for (int64_t j = threadIdx.x; j < in.d_v; j += kDeltaThreads) {
    for (int64_t i = 0; i < in.d_k; ++i) state[i * in.d_v + j] = out.initial[in.state_at() + i * in.d_v + j];
    for (int64_t t = 0; t < in.seq; ++t) {
      if (t % scratch.chunk == 0) {
        float* start = starts + t / scratch.chunk * size;
        for (int64_t i = 0; i < in.d_k; ++i) start[i * in.d_v + j] = state[i * in.d_v + j];
      }
      move_column(in, t, j, state, nullptr);
    }
  }
  for (int64_t n = scratch.chunks - 1; n >= 0; --n) {
    const int64_t begin = n * scratch.chunk;
    const int64_t end = begin + scratch.chunk < in.seq ? begin + scratch.chunk : in.seq;
    for (int64_t j = threadIdx.x; j < in.d_v; j += kDeltaThreads) {
      for (int64_t i = 0; i < in.d_k; ++i) state[i * in.d_v + j] = starts[n * size + i * in.d_v + j];
      for (int64_t t = begin; t < end; ++t) {
        held[(t - begin) * in.d_v + j] = move_column(in, t, j, state, decayed + (t - begin) * size);
      }
    }
    for (int64_t t = end - 1; t >= begin; --t) {
      const float* q = in.q + in.key_at(t);
      const float* k = in.k + in.key_at(t);
      const float beta = in.beta[in.gate_at(t)];
      const float decay = expf(in.g[in.gate_at(t)]);
      __syncthreads();  // the sums of the previous position are complete
      for (int64_t j = threadIdx.x; j < in.d_v; j += kDeltaThreads) {
        const float dy = out.dy[in.value_at(t) + j];
        float sum = 0.0F;
        for (int64_t i = 0; i < in.d_k; ++i) {
          const float ds = fmaf(q[i], dy, grad[i * in.d_v + j]);
          grad[i * in.d_v + j] = ds;
          sum = fmaf(ds, k[i], sum);
        }
        du[j] = sum;
        out.dv[in.value_at(t) + j] = beta * sum;
      }
      __syncthreads();
      sum_columns(in, out, t, decayed + (t - begin) * size, held + (t - begin) * in.d_v, du, parts);
      __syncthreads();
      for (int64_t j = threadIdx.x; j < in.d_v; j += kDeltaThreads) {
        const float back = -beta * du[j];
        for (int64_t i = 0; i < in.d_k; ++i) {
          grad[i * in.d_v + j] = fmaf(k[i], back, grad[i * in.d_v + j]) * decay;
        }
      }
    }
    __syncthreads();  // the next chunk overwrites S'
  }
}

/// total [rows, key_heads, d_k] = sum of parts [rows, heads, d_k] over the value heads that share a key head.
__global__ void sum_heads(const float* parts, float* total, int64_t numel, int64_t d_k, int64_t shared) {
  const int64_t at = blockIdx.x * int64_t{kDeltaThreads} + threadIdx.x;
  if (at >= numel) return;
  float sum = 0.0F;
  for (int64_t h = 0; h < shared; ++h) sum += parts[(at / d_k * shared + h) * d_k + at % d_k];
  total[at] = sum;
}

}  // namespace

void gated_delta_forward(const GatedDeltaForward& args) {
  const int64_t blocks = args.v.dim(0) * args.v.dim(2);
  if (blocks == 0 || args.v.dim(3) == 0) return;
  forward_kernel<<<static_cast<unsigned>(blocks), kDeltaThreads, 0, stream_of(args.v.device())>>>(
      inputs_of(args), args.y.data<float>(), args.state.data<float>());
  check_launch(kDeltaOp);
}

void gated_delta_backward(const GatedDeltaBackward& args) {
  const Device& device = args.v.device();
  const int64_t blocks = args.v.dim(0) * args.v.dim(2);
  const int64_t seq = args.v.dim(1);
  if (blocks == 0 || seq == 0) return;
  const int64_t d_k = args.q.dim(3);
  DeltaScratch scratch{nullptr, args.chunk, (seq + args.chunk - 1) / args.chunk};
  const Tensor room = Tensor::empty({blocks, scratch.size(d_k, args.v.dim(3))}, DType::f32, device);
  scratch.all = room.data<float>();
  const Shape per_head{args.v.dim(0), seq, args.v.dim(2), d_k};
  const Tensor dq = Tensor::empty(per_head, DType::f32, device);
  const Tensor dk = Tensor::empty(per_head, DType::f32, device);
  const DeltaGradients out{device_data<float>(args.initial_state),
                           device_data<float>(args.dy),
                           args.dstate.data<float>(),
                           dq.data<float>(),
                           dk.data<float>(),
                           args.dv.data<float>(),
                           args.dg.data<float>(),
                           args.dbeta.data<float>()};
  backward_kernel<<<static_cast<unsigned>(blocks), kDeltaThreads, 0, stream_of(device)>>>(inputs_of(args), out,
                                                                                          scratch);
  check_launch(kDeltaOp);
  if (args.dq.numel() == 0) return;
  const int64_t shared = args.v.dim(2) / args.q.dim(2);
  const int sums = lamina::cuda::blocks_for(args.dq.numel(), kDeltaThreads);
  for (const auto& [parts, total] : {std::pair(dq, args.dq), std::pair(dk, args.dk)}) {
    sum_heads<<<sums, kDeltaThreads, 0, stream_of(device)>>>(parts.data<float>(), total.data<float>(), total.numel(),
                                                             d_k, shared);
    check_launch(kDeltaOp);
  }
}

}  // namespace lamina::ops::cuda
