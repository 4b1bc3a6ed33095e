// Attention on CUDA: the tables kernels read instead of computing them per score (bias by distance, the document of
// each position, random blocks), the sums around the two gradient kernels, and the choice of kernels. All of it moves a
// few numbers per query; the work is in the files named attention_…_cuda.cu.
#ifdef LAMINA_CUDNN
#include "lamina/ops/attention/attention_cudnn.h"
#endif
#include "lamina/ops/attention/attention_kernel.h"
#include "lamina/ops/attention/attention_short.cuh"
#include "lamina/ops/attention/rotary_attention.h"

namespace lamina::ops::cuda {
namespace {

using lamina::cuda::blocks_for;
using lamina::cuda::check_launch;
using lamina::cuda::device_data;
using lamina::cuda::Fault;
using lamina::cuda::FaultSlot;
using lamina::cuda::kWarp;
using lamina::cuda::stream_of;

constexpr const char* kOp = "attention";
constexpr int kThreads = 256;

/// bias[head, kBiasMargin + n] for n = i − j + seq_k − 1: T5's, and ALiBi's where both are given; and the bucket of
/// each n.
__global__ void bias_kernel(const float* slopes, const float* t5, int buckets, int max_distance, bool causal, int heads,
                            int seq_q, int64_t count, float* bias, int* bucket_of) {
  constexpr int kMargin = AttentionParams::kBiasMargin;
  const int64_t width = count + 2 * kMargin;
  const int64_t n = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x - kMargin;
  if (n >= count + kMargin) return;
  const bool inside = n >= 0 && n < count;
  const int distance = static_cast<int>(seq_q - 1 - n);  // key − query, positions
  const int bucket = t5_bucket_of(distance, !causal, buckets, max_distance);
  if (inside) bucket_of[n] = bucket;
  for (int head = 0; head < heads; ++head) {
    float value = 0;
    if (slopes != nullptr) value -= slopes[head] * static_cast<float>(abs(distance));
    bias[head * width + kMargin + n] = inside ? value + t5[static_cast<int64_t>(bucket) * heads + head] : 0.0F;
  }
}

/// The document of each position. Starts that do not ascend from 0 to seq are reported, and all is one document then.
__global__ void documents_kernel(const int64_t* starts, int64_t count, int seq, DeviceMask::Range* out,
                                 FaultSlot* faults) {
  int wrong = starts[0] != 0 || starts[count - 1] != seq;
  for (int64_t n = threadIdx.x; n + 1 < count; n += kThreads) wrong |= starts[n + 1] < starts[n];
  const bool harmless = __syncthreads_or(wrong) == 0;
  if (!harmless && threadIdx.x == 0 && blockIdx.x == 0) {
    lamina::cuda::report(faults, Fault::document_start, starts[count - 1]);
  }
  const int position = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (position >= seq) return;
  if (!harmless) {
    out[position] = {0, seq};
    return;
  }
  int64_t low = 0;  // the last start that is not behind the position, by halving
  int64_t high = count - 1;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (starts[middle] <= position ? low : high) = middle;
  }
  out[position] = {static_cast<int>(starts[low]), static_cast<int>(starts[low + 1])};
}

__global__ void random_words_kernel(uint64_t seed, int64_t count, uint32_t* out) {
  const int64_t n = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (n < count) out[n] = philox_word({.seed = seed, .stream = 0}, static_cast<uint64_t>(n));
}

/// DeviceMask::cells, a warp per word.
__global__ void cells_kernel(const DeviceMask mask, uint2* out) {
  constexpr int kCell = DeviceMask::kCell;
  const int64_t n = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) / kWarp;
  const int64_t q0 = n / mask.cell_words * kCell;
  const int64_t k0 = n % mask.cell_words * DeviceMask::kCellWord + threadIdx.x % kWarp * kCell;
  if (q0 >= mask.seq_q) return;
  bool any = false;
  bool holes = false;
  if (k0 < mask.seq_k) {
    const int begin = static_cast<int>(q0);
    const int end = min(begin + kCell, mask.seq_q);
    const int first = static_cast<int>(k0);
    const int last = min(first + kCell, mask.seq_k);
    any = mask.coverage(begin, end, first, last) != DeviceMask::Coverage::none;
    holes = any && mask.holes(begin, end, first, last) != DeviceMask::Coverage::full;
  }
  const uint2 words{__ballot_sync(lamina::cuda::kAllLanes, any), __ballot_sync(lamina::cuda::kAllLanes, holes)};
  if (threadIdx.x % kWarp == 0) out[n] = words;
}

/// For a row of y, [batch, seq_q, n_heads]: delta[b, head, i] = Σ_d dy · y and base[b, head, i] = log2 Σ exp(score).
struct RowSums {
  int64_t rows;
  int seq_q;
  int n_heads;
  const float* greatest;
  const float* inverse;  // or null: `greatest` is log Σ exp(score) already
  float* delta;
  float* base;

  __device__ void put(int64_t row, float sum) const {
    const int64_t b = row / n_heads / seq_q;
    const int64_t at = (b * n_heads + row % n_heads) * seq_q + row / n_heads % seq_q;
    delta[at] = sum;
    const float less = inverse == nullptr ? 0.0F : log2f(inverse[at]);
    base[at] = greatest[at] * kLog2E - less;  // +inf, for weights of 0, where no key was seen
  }
};

__global__ void log_sum_kernel(const float* greatest, const float* inverse, int64_t count, float* out) {
  const int64_t n = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (n < count) out[n] = greatest[n] - logf(inverse[n]);
}

/// A warp per row of y.
template <class T>
__global__ void delta_kernel(const T* y, const T* dy, int d_v, const RowSums out) {
  const int64_t row = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) / kWarp;
  const int lane = threadIdx.x % kWarp;
  if (row >= out.rows) return;
  float sum = 0;
  for (int c = lane; c < d_v; c += kWarp) sum = fmaf(to_float(y[row * d_v + c]), to_float(dy[row * d_v + c]), sum);
  sum = lamina::cuda::warp_sum(sum);
  if (lane == 0) out.put(row, sum);
}

/// As delta_kernel for rows of whole packs, `lanes` of them (a power of two) per row.
template <class T>
__global__ void delta_packs_kernel(const T* y, const T* dy, int d_v, int lanes, const RowSums out) {
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

/// dsinks[head] = − Σ p_sink · delta over the queries of all rows, a block per head.
__global__ void sink_kernel(const AttentionParams p, float* dsinks) {
  __shared__ float scratch[32];
  const int head = blockIdx.x;
  const float sink = p.sinks[head];
  float sum = 0;
  const int64_t count = static_cast<int64_t>(p.batch) * p.seq_q;
  for (int64_t n = threadIdx.x; n < count; n += blockDim.x) {
    const int64_t at = p.statistics_row(static_cast<int>(n / p.seq_q), head) + n % p.seq_q;
    sum += expf(sink - p.greatest[at]) * p.inverse[at] * p.delta[at];
  }
  sum = lamina::cuda::block_sum(sum, scratch);
  if (threadIdx.x == 0) dsinks[head] = -sum;
}

/// dt5[bucket, head] from what each tile of queries found, a block per bucket and head.
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

int narrow(int64_t value) { return static_cast<int>(std::min(value, kMostDevicePositions)); }

HeadStrides strides_of(const Tensor& tensor) { return {tensor.strides()[0], tensor.strides()[1], tensor.strides()[2]}; }

/// Whether the rows of a tensor [batch, seq, heads, d] can be read 16 bytes at a time.
bool has_packs(const Tensor& tensor) {
  const auto size = static_cast<int64_t>(size_of(tensor.dtype()));
  bool fits = reinterpret_cast<uintptr_t>(tensor.raw()) % 16 == 0 && tensor.dim(3) * size % 16 == 0;
  for (int axis = 0; axis < 3; ++axis) fits &= tensor.dim(axis) <= 1 || tensor.strides()[axis] * size % 16 == 0;
  return fits;
}

Tensor make_bias(const AttentionForward& args, const AttentionSizes& sizes, Tensor& bucket_of, cudaStream_t stream) {
  const AttentionExtras& extras = args.extras;
  if (!extras.t5_bias.defined()) return {};
  const int64_t count = sizes.seq_q + sizes.seq_k - 1;
  const int64_t width = count + 2 * int64_t{AttentionParams::kBiasMargin};
  Tensor bias = Tensor::empty({sizes.n_heads, width}, DType::f32, args.q.device());
  bucket_of = Tensor::empty({count}, DType::i32, args.q.device());
  const int64_t buckets = extras.t5_bias.dim(0);
  bias_kernel<<<blocks_for(width, kThreads), kThreads, 0, stream>>>(
      device_data<float>(extras.alibi_slopes), device_data<float>(extras.t5_bias), narrow(buckets),
      narrow(args.options.t5_max_distance), args.options.causal, narrow(sizes.n_heads), narrow(sizes.seq_q), count,
      bias.data<float>(), bucket_of.data<int32_t>());
  check_launch(kOp);
  return bias;
}

Tensor make_documents(const AttentionForward& args, cudaStream_t stream) {
  const Tensor& starts = args.extras.document_starts;
  if (!starts.defined() || starts.numel() <= 2) return {};
  const int64_t seq = args.k.dim(1);
  Tensor documents = Tensor::empty({seq, 2}, DType::i32, args.q.device());
  documents_kernel<<<blocks_for(seq, kThreads), kThreads, 0, stream>>>(
      starts.data<int64_t>(), starts.numel(), narrow(seq), reinterpret_cast<DeviceMask::Range*>(documents.raw()),
      lamina::cuda::fault_slot(args.q.device()));
  check_launch(kOp);
  return documents;
}

Tensor make_random_words(const AttentionForward& args, cudaStream_t stream) {
  const AttentionPattern& pattern = args.options.pattern;
  if (pattern.kind != AttentionPattern::Kind::blocks || pattern.random_blocks == 0) return {};
  const int64_t count = (args.k.dim(1) + pattern.block - 1) / pattern.block * pattern.random_blocks;
  Tensor words = Tensor::empty({count}, DType::i32, args.q.device());
  random_words_kernel<<<blocks_for(count, kThreads), kThreads, 0, stream>>>(pattern.seed, count,
                                                                            reinterpret_cast<uint32_t*>(words.raw()));
  check_launch(kOp);
  return words;
}

Tensor make_cells(DeviceMask& mask, const Device& device, cudaStream_t stream) {
  if (mask.ranges_suffice) return {};
  mask.cell_words = (mask.seq_k + DeviceMask::kCellWord - 1) / DeviceMask::kCellWord;
  const int64_t rows = (mask.seq_q + DeviceMask::kCell - 1) / DeviceMask::kCell;
  Tensor cells = Tensor::empty({rows, mask.cell_words, 2}, DType::i32, device);
  mask.cells = reinterpret_cast<const uint2*>(cells.raw());
  cells_kernel<<<blocks_for(rows * mask.cell_words * kWarp, kThreads), kThreads, 0, stream>>>(
      mask, reinterpret_cast<uint2*>(cells.raw()));
  check_launch(kOp);
  return cells;
}

/// Whether the forward pass has left log Σ exp(score) in `greatest`, and maybe nothing in `inverse`.
bool has_log_sums(const AttentionForward& args) {
#ifdef LAMINA_CUDNN
  return leaves_log_sums(args);
#else
  return false;
#endif
}

/// [2, batch, n_heads, seq_q]: delta and base.
template <class T>
Tensor make_delta(const AttentionBackward& args, const AttentionSizes& sizes, cudaStream_t stream) {
  using D = DeviceType<T>;
  Tensor result = Tensor::empty({2, sizes.batch, sizes.n_heads, sizes.seq_q}, DType::f32, args.dy.device());
  const int64_t rows = result.numel() / 2;
  const RowSums out{rows,
                    narrow(sizes.seq_q),
                    narrow(sizes.n_heads),
                    args.forward.greatest.data<float>(),
                    has_log_sums(args.forward) ? nullptr : args.forward.inverse.data<float>(),
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

/// Tensor cores where they have a kernel, else plain tiles.
template <class T>
void run_forward(const AttentionParams& params, const Device& device) {
  if constexpr (!std::is_same_v<T, float>) {
    if (takes_mma(params)) {
      if (!forward_by_wgmma<T>(params, device)) forward_by_mma<T>(params, stream_of(device));
      return;
    }
  }
  forward_by_tiles<T>(params, stream_of(device));
}

enum class GradientKernels { tiles, mma, wgmma };

/// f16 is for inference: its backward has no kernels of its own to compile.
template <class T>
GradientKernels gradient_kernels(const AttentionParams& params, const Device& device) {
  if (!std::is_same_v<T, bf16> || !takes_mma(params)) return GradientKernels::tiles;
  return takes_wgmma_backward(params, device) ? GradientKernels::wgmma : GradientKernels::mma;
}
/// Queries of one block of the kernel that makes dt5.
int query_rows(const AttentionParams& params, GradientKernels kernels) {
  switch (kernels) {
    case GradientKernels::mma: return mma_query_rows(params);
    case GradientKernels::wgmma: return kWgmmaQueries;
    case GradientKernels::tiles: break;
  }
  return kTileQueries;
}
template <class T>
void run_backward(const AttentionParams& params, GradientKernels kernels, cudaStream_t stream) {
  if constexpr (std::is_same_v<T, bf16>) {
    if (kernels == GradientKernels::wgmma) {
      key_gradients_by_wgmma<T>(params, stream);
      query_gradients_by_wgmma<T>(params, stream);
      return;
    }
    if (kernels == GradientKernels::mma) {
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

#ifdef LAMINA_CUDNN
/// Our own gradients of plain causal attention take less time than cuDNN's up to so many keys.
constexpr int64_t kMostOwnKeys = 1024;

bool is_faster_than_cudnn(const AttentionBackward& args) {
  const AttentionForward& in = args.forward;
  if (in.q.dtype() != DType::bf16 || !in.options.causal || in.k.dim(1) > kMostOwnKeys) return false;
  if (in.y.numel() == 0 || in.extras.t5_bias.defined() || in.extras.document_starts.defined()) return false;
  const AttentionParams params = backward_workspace(args).params;
  return score_work(params) == ScoreWork::plain && takes_mma(params) && takes_wgmma_backward(params, args.dy.device());
}
#endif

/// Has nothing that the kernel of short attention does not know.
bool may_be_short(const AttentionForward& args) {
  const AttentionExtras& extras = args.extras;
  return args.q.dtype() == DType::bf16 && args.options.pattern.kind == AttentionPattern::Kind::full &&
         !extras.alibi_slopes.defined() && !extras.t5_bias.defined() && !extras.sinks.defined() &&
         !extras.document_starts.defined() && args.y.numel() > 0;
}

bool backward_of_short(const AttentionBackward& args, const ShortRotation& rotation) {
  if (!may_be_short(args.forward)) return false;
  const Device& device = args.dy.device();
  AttentionParams params = backward_workspace(args).params;
  if (!takes_short_backward(params, device)) return false;
  if (has_log_sums(args.forward)) params.inverse = nullptr;
  short_backward<bf16>(params, rotation, device);
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
  const GradientKernels kernels = gradient_kernels<T>(params, device);
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

DeviceMask device_mask(const AttentionOptions& options, int64_t seq_q, int64_t seq_k) {
  LAMINA_CHECK(seq_q < kMostDevicePositions && seq_k < kMostDevicePositions, kOp, ": ", seq_q, " queries and ", seq_k,
               " keys on a cuda device; expected fewer than ", kMostDevicePositions, " of each");
  const AttentionPattern& pattern = options.pattern;
  DeviceMask mask{};
  mask.kind = pattern.kind;
  mask.causal = options.causal;
  mask.ranges_suffice = pattern.kind == AttentionPattern::Kind::full ||
                        (pattern.kind == AttentionPattern::Kind::window && pattern.global_tokens == 0);
  mask.seq_q = narrow(seq_q);
  mask.seq_k = narrow(seq_k);
  mask.offset = static_cast<int>(seq_k - seq_q);
  mask.window = narrow(pattern.window);
  mask.global_tokens = narrow(pattern.global_tokens);
  mask.block = narrow(pattern.block);
  mask.window_blocks = narrow(pattern.window_blocks);
  mask.global_blocks = narrow(pattern.global_blocks);
  mask.random_blocks = narrow(pattern.random_blocks);
  mask.stride = narrow(pattern.stride);
  mask.seed = pattern.seed;
  return mask;
}

AttentionWorkspace attention_workspace(const AttentionForward& args) {
  const AttentionSizes sizes = attention_sizes(args);
  cudaStream_t stream = stream_of(args.q.device());
  AttentionWorkspace workspace;
  AttentionParams& p = workspace.params = {};
  p.batch = narrow(sizes.batch);
  p.seq_q = narrow(sizes.seq_q);
  p.seq_k = narrow(sizes.seq_k);
  p.n_heads = narrow(sizes.n_heads);
  p.n_kv_heads = narrow(sizes.n_kv_heads);
  p.group = narrow(sizes.group);
  p.d_qk = narrow(sizes.d_qk);
  p.d_v = narrow(sizes.d_v);
  p.q = args.q.raw();
  p.k = args.k.raw();
  p.v = args.v.raw();
  p.q_at = strides_of(args.q);
  p.k_at = strides_of(args.k);
  p.v_at = strides_of(args.v);
  p.y_at = strides_of(args.y);
  p.packs = has_packs(args.q) && has_packs(args.k) && has_packs(args.v) && has_packs(args.y);
  p.scale = static_cast<float>(args.options.scale);
  p.soft_cap = static_cast<float>(args.options.soft_cap);
  p.unit = p.soft_cap == 0 && p.scale > 0 ? p.scale * kLog2E : 1.0F;
  p.bias_factor = kLog2E / p.unit;
  p.mask = device_mask(args.options, sizes.seq_q, sizes.seq_k);
  const uint32_t threshold = attention_dropout_threshold(args.options.dropout);
  p.dropout = {args.options.dropout_key.stream,
               threshold,
               static_cast<float>(attention_dropout_factor(threshold)),
               lamina::cuda::random_offset(args.q.device()),
               philox_keys(args.options.dropout_key.seed),
               dropout_planes(threshold)};
  p.sinks = device_data<float>(args.extras.sinks);
  p.y = args.y.raw();
  p.greatest = args.greatest.data<float>();
  p.inverse = args.inverse.data<float>();
  if (sizes.batch == 0 || sizes.seq_q == 0 || sizes.seq_k == 0) return workspace;
  workspace.bias = make_bias(args, sizes, workspace.buckets, stream);
  if (workspace.buckets.defined()) p.buckets = workspace.buckets.data<int32_t>();
  workspace.documents = make_documents(args, stream);
  workspace.random_words = make_random_words(args, stream);
  p.bias = device_data<float>(workspace.bias);
  if (!workspace.bias.defined()) p.slopes = device_data<float>(args.extras.alibi_slopes);
  p.flat_from = narrow(args.extras.alibi_slopes.defined() ? kMostDevicePositions : args.options.t5_max_distance);
  p.t5_flat_from = narrow(args.options.t5_max_distance);
  if (workspace.documents.defined()) {
    p.mask.documents = reinterpret_cast<const DeviceMask::Range*>(workspace.documents.raw());
  }
  if (workspace.random_words.defined()) {
    p.mask.random_words = reinterpret_cast<const uint32_t*>(workspace.random_words.raw());
  }
  if (args.q.dtype() != DType::f32) workspace.cells = make_cells(p.mask, args.q.device(), stream);
  return workspace;
}

Tensor log_sums(const AttentionForward& args) {
  const Device& device = args.greatest.device();
  Tensor sums = Tensor::empty(args.greatest.shape(), DType::f32, device);
  log_sum_kernel<<<blocks_for(sums.numel(), kThreads), kThreads, 0, stream_of(device)>>>(
      args.greatest.data<float>(), args.inverse.data<float>(), sums.numel(), sums.data<float>());
  check_launch(kOp);
  return sums;
}

void attention_forward(const AttentionForward& args) {
  if (args.greatest.numel() == 0) return;
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
  if (args.forward.q.dim(2) == 0 || backward_of_short(args, {})) return;
#ifdef LAMINA_CUDNN
  const bool may_change = !args.dy.device().deterministic();  // cuDNN adds in an order of chance
  if (may_change && !is_faster_than_cudnn(args) && backward_by_cudnn(args)) return;
#endif
  lamina::cuda::visit_floating(kOp, args.dy.dtype(), [&](auto tag) { backward<typename decltype(tag)::type>(args); });
}

void knows_rotated_gradients(const AttentionForward& args, bool& known) {
  known = args.q.dim(3) == kShortWidth && may_be_short(args) &&
          takes_short_backward(attention_workspace(args).params, args.q.device());
}

void rotary_attention_backward(const RotaryAttentionBackward& args) {
  AttentionBackward attention = args.attention;
  if (!has_packs(attention.dy)) attention.dy = attention.dy.clone();
  const bool done = backward_of_short(attention, {args.cos.data<float>(), args.sin.data<float>()});
  LAMINA_CHECK(done, "rotary_attention: no kernel for gradients that was there in the forward pass");
}

}  // namespace lamina::ops::cuda
