// Attention on CUDA: kernel selection, and the small reductions around the gradient kernels. The main kernels are in
// cudnn/, wgmma/, mma/ and tiles/.
#ifdef LAMINA_CUDNN
#include "lamina/ops/attention/cuda/cudnn/attention_cudnn.h"
#endif
#include "lamina/ops/attention/attention_kernel.h"
#include "lamina/ops/attention/cuda/rotated.cuh"
#include "lamina/ops/attention/rotary_attention.h"

namespace lamina::ops::cuda {
namespace {

using lamina::cuda::blocks_for;
using lamina::cuda::check_launch;
using lamina::cuda::device_data;
using lamina::cuda::kWarp;
using lamina::cuda::stream_of;

constexpr const char* kOp = "attention";
constexpr int kThreads = 256;

/// Outputs of one row of y [batch, seq_q, n_heads]: delta[b, head, i] = Σ_d dy · y and base[b, head, i] = log2 Σ
/// exp(score).
struct RowStatistics {
  int64_t rows;
  int seq_q;
  int n_heads;
  const float* row_max;
  const float* row_inv_sum;  // or null: `row_max` already holds log Σ exp(score)
  float* delta;
  float* base;

  __device__ void put(int64_t row, float sum) const {
    const int64_t b = row / n_heads / seq_q;
    const int64_t at = (b * n_heads + row % n_heads) * seq_q + row / n_heads % seq_q;
    delta[at] = sum;
    const float less = row_inv_sum == nullptr ? 0.0F : log2f(row_inv_sum[at]);
    base[at] = row_max[at] * kLog2E - less;  // +inf if no key is visible, so that weights are 0
  }
};

__global__ void log_sum_kernel(const float* row_max, const float* row_inv_sum, int64_t count, float* out) {
  const int64_t n = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (n < count) out[n] = row_max[n] - logf(row_inv_sum[n]);
}

/// One warp per row of y.
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

/// delta_kernel with 16-byte loads; `lanes` threads (a power of two) per row.
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

/// dsinks[head] = − Σ p_sink · delta over all queries of all batch rows; one block per head.
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

/// dt5[bucket, head]: sums the partial results of all query tiles; one block per bucket and head.
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

/// Whether forward left log Σ exp(score) in `row_max`; `row_inv_sum` may then be unwritten.
bool forward_saved_log_sum_exp(const AttentionForward& args) {
#ifdef LAMINA_CUDNN
  return forward_saves_log_sum_exp(args);
#else
  return false;
#endif
}

/// Computes delta and base, [2, batch, n_heads, seq_q].
template <class T>
Tensor make_delta(const AttentionBackward& args, const AttentionSizes& sizes, cudaStream_t stream) {
  using D = DeviceType<T>;
  Tensor result = Tensor::empty({2, sizes.batch, sizes.n_heads, sizes.seq_q}, DType::f32, args.dy.device());
  const int64_t rows = result.numel() / 2;
  const RowStatistics out{rows,
                          narrow(sizes.seq_q),
                          narrow(sizes.n_heads),
                          args.forward.row_max.data<float>(),
                          forward_saved_log_sum_exp(args.forward) ? nullptr : args.forward.row_inv_sum.data<float>(),
                          result.data<float>(),
                          result.data<float>() + rows};
  const D* y = device_data<T>(args.forward.y);
  const D* dy = device_data<T>(args.dy);
  const int d_v = narrow(sizes.d_v);
  constexpr int kSize = lamina::cuda::Pack<D>::kSize;
  if (d_v > 0 && d_v <= kWarp * kSize && lamina::cuda::fits_packs(y, d_v) && lamina::cuda::fits_packs(dy, d_v)) {
    int lanes = 1;
    while (lanes * kSize < d_v) lanes *= 2;
    delta_packs_kernel<<<blocks_for(rows * lanes, kThreads), kThreads, 0, stream>>>(y, dy, d_v, lanes, out);
  } else {
    delta_kernel<<<blocks_for(rows * kWarp, kThreads), kThreads, 0, stream>>>(y, dy, d_v, out);
  }
  check_launch(kOp);
  return result;
}

/// Uses tensor cores if they support the case, else the plain tiled kernel.
template <class T>
void run_forward(const AttentionParams& params, const Device& device) {
  if constexpr (!std::is_same_v<T, float>) {
    if (supports_mma(params)) {
      if (!forward_by_wgmma<T>(params, device)) forward_by_mma<T>(params, stream_of(device));
      return;
    }
  }
  forward_by_tiles<T>(params, stream_of(device));
}

enum class BackwardKernels { tiles, mma, wgmma };

/// Only bf16 has tensor-core backward kernels; f16 is for inference and falls back to tiles, to save compile time.
template <class T>
BackwardKernels gradient_kernels(const AttentionParams& params, const Device& device) {
  if (!std::is_same_v<T, bf16> || !supports_mma(params)) return BackwardKernels::tiles;
  return supports_wgmma_backward(params, device) ? BackwardKernels::wgmma : BackwardKernels::mma;
}
/// Queries per block of the kernel that computes dt5.
int query_rows(const AttentionParams& params, BackwardKernels kernels) {
  switch (kernels) {
    case BackwardKernels::mma: return mma_query_rows(params);
    case BackwardKernels::wgmma: return kWgmmaQueries;
    case BackwardKernels::tiles: break;
  }
  return kTileQueries;
}
template <class T>
void run_backward(const AttentionParams& params, BackwardKernels kernels, cudaStream_t stream) {
  if constexpr (std::is_same_v<T, bf16>) {
    if (kernels == BackwardKernels::wgmma) {
      key_gradients_by_wgmma<T>(params, stream);
      query_gradients_by_wgmma<T>(params, stream);
      return;
    }
    if (kernels == BackwardKernels::mma) {
      key_gradients_by_mma<T>(params, stream);
      query_gradients_by_mma<T>(params, stream);
      return;
    }
  }
  backward_by_tiles<T>(params, stream);
}

AttentionWorkspace backward_workspace(const AttentionBackward& args) {
  AttentionWorkspace workspace = attention_workspace(args.forward);
  AttentionParams& params = workspace.params;
  params.dy = args.dy.raw();
  params.dq = args.dq.raw();
  params.dk = args.dk.raw();
  params.dv = args.dv.raw();
  params.dq_at = strides_of(args.dq);
  params.dk_at = strides_of(args.dk);
  params.dv_at = strides_of(args.dv);
  params.packs &= has_packs(args.dy) && has_packs(args.dq) && has_packs(args.dk) && has_packs(args.dv);
  return workspace;
}

/// bf16 without pattern, ALiBi, T5 bias, sinks or packed documents.
bool is_plain_bf16_attention(const AttentionForward& args) {
  const AttentionExtras& extras = args.extras;
  return args.q.dtype() == DType::bf16 && args.options.pattern.kind == AttentionPattern::Kind::full &&
         !extras.alibi_slopes.defined() && !extras.t5_bias.defined() && !extras.sinks.defined() &&
         !extras.document_starts.defined() && args.y.numel() > 0;
}

bool try_short_backward(const AttentionBackward& args, const RotaryAngles& angles) {
  if (!is_plain_bf16_attention(args.forward)) return false;
  const Device& device = args.dy.device();
  AttentionParams params = backward_workspace(args).params;
  if (!supports_short_backward(params, device)) return false;
  if (forward_saved_log_sum_exp(args.forward)) params.row_inv_sum = nullptr;
  short_backward<bf16>(params, angles, device);
  return true;
}

#ifdef LAMINA_CUDNN
/// Up to this many keys our backward of plain causal attention is faster than cuDNN's.
constexpr int64_t kMostOwnKeys = 1024;

bool is_faster_than_cudnn(const AttentionBackward& args) {
  const AttentionForward& in = args.forward;
  if (!is_plain_bf16_attention(in) || !in.options.causal || in.k.dim(1) > kMostOwnKeys) return false;
  const AttentionParams params = backward_workspace(args).params;
  return score_features(params) == ScoreFeatures::plain && supports_mma(params) &&
         supports_wgmma_backward(params, args.dy.device());
}
#endif

/// One-pass backward; dq accumulates with atomics there, so it is used only if determinism is not requested.
bool try_one_pass_backward(const AttentionBackward& args, const RotaryAngles& angles) {
  const Device& device = args.dy.device();
  if (device.deterministic() || !is_plain_bf16_attention(args.forward)) return false;
  AttentionParams params = backward_workspace(args).params;
  if (!supports_one_pass_backward(params, device)) return false;
  const Tensor delta = make_delta<bf16>(args, attention_sizes(args.forward), stream_of(device));
  params.delta = delta.data<float>();
  params.base = params.delta + delta.numel() / 2;
  one_pass_backward<bf16>(params, angles, device);
  return true;
}

template <class T>
void backward(const AttentionBackward& args) {
  const AttentionSizes sizes = attention_sizes(args.forward);
  const Device& device = args.dy.device();
  cudaStream_t stream = stream_of(device);
  AttentionWorkspace workspace = backward_workspace(args);
  AttentionParams& params = workspace.params;
  Tensor delta;
  if (sizes.batch * sizes.seq_q > 0) {
    delta = make_delta<T>(args, sizes, stream);
    params.delta = delta.data<float>();
    params.base = params.delta + delta.numel() / 2;
  }
  if (args.dt5_bias.defined()) params.t5_buckets = narrow(args.dt5_bias.dim(0));
  const BackwardKernels kernels = gradient_kernels<T>(params, device);
  const int64_t rows = query_rows(params, kernels);
  const int64_t tiles = (sizes.seq_q + rows - 1) / rows;
  Tensor parts;
  if (args.dt5_bias.defined()) {
    parts = Tensor::empty({sizes.batch * sizes.n_heads * tiles, args.dt5_bias.dim(0)}, DType::f32, device);
    params.dt5 = parts.data<float>();
  }
  run_backward<T>(params, kernels, stream);
  if (args.dt5_bias.defined()) {
    const auto blocks = static_cast<unsigned>(args.dt5_bias.numel());
    bucket_sum_kernel<<<blocks, kThreads, 0, stream>>>(params.dt5, params.batch, params.n_heads, narrow(tiles),
                                                       params.t5_buckets, args.dt5_bias.data<float>());
    check_launch(kOp);
  }
  if (args.dsinks.defined()) {
    sink_kernel<<<static_cast<unsigned>(sizes.n_heads), 1024, 0, stream>>>(params, args.dsinks.data<float>());
    check_launch(kOp);
  }
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

void attention_forward(const AttentionForward& args) {
  if (args.row_max.numel() == 0) return;
#ifdef LAMINA_CUDNN
  if (forward_by_cudnn(args)) return;
#endif
  lamina::cuda::visit_floating(kOp, args.q.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const AttentionWorkspace workspace = attention_workspace(args);
    run_forward<T>(workspace.params, args.q.device());
  });
}

void attention_backward(const AttentionBackward& args) {
  if (args.forward.q.dim(2) == 0 || try_short_backward(args, {}) || try_one_pass_backward(args, {})) return;
#ifdef LAMINA_CUDNN
  const bool may_change = !args.dy.device().deterministic();  // cuDNN accumulates dq with atomics
  if (may_change && !is_faster_than_cudnn(args) && backward_by_cudnn(args)) return;
#endif
  lamina::cuda::visit_floating(kOp, args.dy.dtype(), [&](auto tag) { backward<typename decltype(tag)::type>(args); });
}

void has_rotary_backward(const AttentionForward& args, bool& known) {
  known = false;
  if (args.q.dim(3) != RotaryAngles::kWidth || !is_plain_bf16_attention(args)) return;
  const AttentionParams params = attention_workspace(args).params;
  const Device& device = args.q.device();
  known = supports_short_backward(params, device) ||
          (!device.deterministic() && supports_one_pass_backward(params, device));
}

void rotary_attention_backward(const RotaryAttentionBackward& args) {
  AttentionBackward attention = args.attention;
  if (!has_packs(attention.dy)) attention.dy = attention.dy.clone();
  const RotaryAngles angles{args.cos.data<float>(), args.sin.data<float>()};
  const bool done = try_short_backward(attention, angles) || try_one_pass_backward(attention, angles);
  LAMINA_CHECK(
      done, "rotary_attention: the fused backward chosen in forward is unavailable (internal error, please report it)");
}

}  // namespace lamina::ops::cuda
