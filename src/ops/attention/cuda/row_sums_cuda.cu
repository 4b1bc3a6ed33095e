// Reductions around the backward kernels. Before them: Σ dy · y and log Σ exp(score) of each row. After them: the
// gradients of sinks and T5 bias.
#include "lamina/ops/attention/cuda/row_sums.cuh"

#include "lamina/ops/attention/cuda/cudnn/attention_cudnn.h"

namespace lamina::ops::cuda {
namespace {

using lamina::cuda::blocks_for;
using lamina::cuda::check_launch;
using lamina::cuda::device_data;
using lamina::cuda::kLog2E;
using lamina::cuda::kWarp;
using lamina::cuda::stream_of;

constexpr const char* kOp = "attention";
constexpr int kThreads = 256;

/// Arguments for a row of y [batch, seq_q, n_heads]; outputs delta[b, head, i] = Σ_d dy · y and base[b, head, i] = log2
/// Σ exp(score).
struct RowStatistics {
  int64_t rows;
  int seq_q;
  int n_heads;
  const float* row_max;
  const float* row_inv_sum;  // null: row_max already holds log Σ exp(score)
  float* delta;
  float* base;

  __device__ void put(int64_t row, float sum) const {
    const int64_t b = row / n_heads / seq_q;
    const int64_t at = (b * n_heads + row % n_heads) * seq_q + row / n_heads % seq_q;
    delta[at] = sum;
    const float less = row_inv_sum == nullptr ? 0.0F : log2f(row_inv_sum[at]);
    base[at] = row_max[at] * kLog2E - less;  // +inf if no key is visible, which makes the weights 0
  }
};

__global__ void log_sum_kernel(const float* row_max, const float* row_inv_sum, int64_t count, float* out) {
  const int64_t n = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (n < count) out[n] = row_max[n] - logf(row_inv_sum[n]);
}

/// Computes RowStatistics: one warp per row of y.
template <class T>
__global__ void delta_kernel(const T* y, const T* dy, int d_v, const RowStatistics out) {
  const int64_t row = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) / kWarp;
  const int lane = threadIdx.x % kWarp;
  if (row >= out.rows) return;
  float sum = 0;
  for (int c = lane; c < d_v; c += kWarp) sum = fmaf(to_float(y[row * d_v + c]), to_float(dy[row * d_v + c]), sum);
  sum = lamina::cuda::warp_sum(sum);
  if (lane == 0) out.put(row, sum);
}

/// delta_kernel with 16-byte loads, and `lanes` threads (a power of two) per row.
template <class T>
__global__ void delta_packs_kernel(const T* y, const T* dy, int d_v, int lanes, const RowStatistics out) {
  using lamina::cuda::Pack;
  const int64_t row = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) / lanes;
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  float sum = 0;
  if (row < out.rows && lane * Pack<T>::kSize < d_v) {
    const Pack<T> a = lamina::cuda::load_pack(y + row * d_v + lane * Pack<T>::kSize);
    const Pack<T> b = lamina::cuda::load_pack(dy + row * d_v + lane * Pack<T>::kSize);
#pragma unroll
    for (int i = 0; i < Pack<T>::kSize; ++i) sum = fmaf(to_float(a.values[i]), to_float(b.values[i]), sum);
  }
  for (int step = lanes / 2; step > 0; step /= 2) sum += __shfl_xor_sync(lamina::cuda::kAllLanes, sum, step);
  if (row < out.rows && lane == 0) out.put(row, sum);
}

/// dsinks[head] = − Σ p_sink · delta over all queries and batch rows. One block per head.
__global__ void sink_kernel(const AttentionParams p, float* dsinks) {
  __shared__ float scratch[32];
  const int head = blockIdx.x;
  const float sink = p.sinks[head];
  float sum = 0;
  const int64_t count = static_cast<int64_t>(p.batch) * p.seq_q;
  for (int64_t n = threadIdx.x; n < count; n += blockDim.x) {
    const int64_t at = p.statistics_row(static_cast<int>(n / p.seq_q), head) + n % p.seq_q;
    sum += expf(sink - p.row_max[at]) * p.row_inv_sum[at] * p.delta[at];
  }
  sum = lamina::cuda::block_sum(sum, scratch);
  if (threadIdx.x == 0) dsinks[head] = -sum;
}

/// dt5[bucket, head] = sum of the partial results of all query tiles. One block per bucket and head.
__global__ void bucket_sum_kernel(const float* parts, int batch, int n_heads, int tiles, int buckets, float* dt5) {
  __shared__ float scratch[32];
  const int bucket = static_cast<int>(blockIdx.x) % buckets;
  const int head = static_cast<int>(blockIdx.x) / buckets;
  float sum = 0;
  const int64_t count = static_cast<int64_t>(batch) * tiles;
  for (int64_t n = threadIdx.x; n < count; n += blockDim.x) {
    sum += parts[((n / tiles * n_heads + head) * tiles + n % tiles) * buckets + bucket];
  }
  sum = lamina::cuda::block_sum(sum, scratch);
  if (threadIdx.x == 0) dt5[static_cast<int64_t>(bucket) * n_heads + head] = sum;
}

template <class T>
Tensor make_delta_of(const AttentionBackward& args) {
  using D = DeviceType<T>;
  const AttentionSizes sizes = attention_sizes(args.forward);
  cudaStream_t stream = stream_of(args.dy.device());
  Tensor result = Tensor::empty({2, sizes.batch, sizes.n_heads, sizes.seq_q}, DType::f32, args.dy.device());
  const int64_t rows = result.numel() / 2;
  const RowStatistics out{rows,
                          narrow(sizes.seq_q),
                          narrow(sizes.n_heads),
                          args.forward.row_max.data<float>(),
                          args.forward.saved_log_sum_exp ? nullptr : args.forward.row_inv_sum.data<float>(),
                          result.data<float>(),
                          result.data<float>() + rows};
  const D* y = device_data<T>(args.forward.y);
  const D* dy = device_data<T>(args.dy);
  const int d_v = narrow(sizes.d_v);
  constexpr int kSize = lamina::cuda::Pack<D>::kSize;
  if (d_v > 0 && d_v <= kWarp * kSize && lamina::cuda::is_pack_aligned(y, d_v) &&
      lamina::cuda::is_pack_aligned(dy, d_v)) {
    int lanes = 1;
    while (lanes * kSize < d_v) lanes *= 2;
    delta_packs_kernel<<<blocks_for(rows * lanes, kThreads), kThreads, 0, stream>>>(y, dy, d_v, lanes, out);
  } else {
    delta_kernel<<<blocks_for(rows * kWarp, kThreads), kThreads, 0, stream>>>(y, dy, d_v, out);
  }
  check_launch(kOp);
  return result;
}

}  // namespace

Tensor log_sum_exp(const AttentionForward& args) {
  const Device& device = args.row_max.device();
  Tensor sums = Tensor::empty(args.row_max.shape(), DType::f32, device);
  log_sum_kernel<<<blocks_for(sums.numel(), kThreads), kThreads, 0, stream_of(device)>>>(
      args.row_max.data<float>(), args.row_inv_sum.data<float>(), sums.numel(), sums.data<float>());
  check_launch(kOp);
  return sums;
}

Tensor make_delta(const AttentionBackward& args) {
  Tensor delta;
  lamina::cuda::visit_floating(kOp, args.dy.dtype(),
                               [&](auto tag) { delta = make_delta_of<typename decltype(tag)::type>(args); });
  return delta;
}

void sum_bucket_gradients(const AttentionParams& params, int64_t tiles, const Tensor& dt5_bias, cudaStream_t stream) {
  bucket_sum_kernel<<<static_cast<unsigned>(dt5_bias.numel()), kThreads, 0, stream>>>(
      params.dt5, params.batch, params.n_heads, narrow(tiles), params.t5_buckets, dt5_bias.data<float>());
  check_launch(kOp);
}

void sum_sink_gradients(const AttentionParams& params, const Tensor& dsinks, cudaStream_t stream) {
  sink_kernel<<<static_cast<unsigned>(params.n_heads), 1024, 0, stream>>>(params, dsinks.data<float>());
  check_launch(kOp);
}

}  // namespace lamina::ops::cuda
