// Builds the kernel arguments of attention: sizes, strides, and tables that save work per score. The tables are: bias
// by distance, document of each position, random blocks, and cells in which the pattern has holes.
#include "lamina/ops/attention/attention_kernel.h"
#include "lamina/ops/attention/cuda/mma/mma.cuh"

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

/// bias[head, kBiasMargin + n] for n = i − j + seq_k − 1: the T5 bias, plus ALiBi if given. bucket_of[n]: the T5
/// bucket.
__global__ void bias_kernel(const float* slopes, const float* t5, int buckets, int max_distance, bool causal, int heads,
                            int seq_q, int64_t count, float* bias, int* bucket_of) {
  constexpr int kMargin = AttentionParams::kBiasMargin;
  const int64_t width = count + 2 * kMargin;
  const int64_t n = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x - kMargin;
  if (n >= count + kMargin) return;
  const bool inside = n >= 0 && n < count;
  const int distance = static_cast<int>(seq_q - 1 - n);  // key position − query position
  const int bucket = t5_bucket_of(distance, !causal, buckets, max_distance);
  if (inside) bucket_of[n] = bucket;
  for (int head = 0; head < heads; ++head) {
    float value = 0;
    if (slopes != nullptr) value -= slopes[head] * static_cast<float>(abs(distance));
    bias[head * width + kMargin + n] = inside ? value + t5[static_cast<int64_t>(bucket) * heads + head] : 0.0F;
  }
}

/// Finds the document of each position. Reports starts that do not ascend from 0 to seq; everything is then one
/// document.
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
  int64_t low = 0;  // binary search for the last start <= position
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

/// Fills DeviceMask::cells; one warp per word.
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
  // A block in the table is less than the number of key blocks, so the kernel's modulo leaves it unchanged.
  if (pattern.table != nullptr) return Tensor::from(*pattern.table, {count}, args.q.device());
  Tensor words = Tensor::empty({count}, DType::i32, args.q.device());
  random_words_kernel<<<blocks_for(count, kThreads), kThreads, 0, stream>>>(pattern.seed, count,
                                                                            reinterpret_cast<uint32_t*>(words.raw()));
  check_launch(kOp);
  return words;
}

Tensor make_cells(DeviceMask& mask, const Device& device, cudaStream_t stream) {
  if (mask.is_contiguous_range) return {};
  mask.cell_words = (mask.seq_k + DeviceMask::kCellWord - 1) / DeviceMask::kCellWord;
  const int64_t rows = (mask.seq_q + DeviceMask::kCell - 1) / DeviceMask::kCell;
  Tensor cells = Tensor::empty({rows, mask.cell_words, 2}, DType::i32, device);
  mask.cells = reinterpret_cast<const uint2*>(cells.raw());
  cells_kernel<<<blocks_for(rows * mask.cell_words * kWarp, kThreads), kThreads, 0, stream>>>(
      mask, reinterpret_cast<uint2*>(cells.raw()));
  check_launch(kOp);
  return cells;
}

}  // namespace

DeviceMask device_mask(const AttentionOptions& options, int64_t seq_q, int64_t seq_k) {
  LAMINA_CHECK(seq_q < kMostDevicePositions && seq_k < kMostDevicePositions, kOp, ": ", seq_q, " queries and ", seq_k,
               " keys on a CUDA device; expected fewer than ", kMostDevicePositions, " of each");
  const AttentionPattern& pattern = options.pattern;
  DeviceMask mask{};
  mask.kind = pattern.kind;
  mask.causal = options.causal;
  mask.is_contiguous_range = pattern.kind == AttentionPattern::Kind::full ||
                             (pattern.kind == AttentionPattern::Kind::window && pattern.global_tokens == 0);
  mask.seq_q = narrow(seq_q);
  mask.seq_k = narrow(seq_k);
  mask.offset = static_cast<int>(seq_k - seq_q);
  mask.window = narrow(pattern.window);
  mask.global_tokens = narrow(pattern.global_tokens);
  mask.block = narrow(pattern.block);
  mask.window_blocks = narrow(pattern.window_blocks);
  mask.global_blocks = narrow(pattern.global_blocks);
  mask.last_blocks = narrow(pattern.last_blocks);
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
  p.vectorized = is_16_byte_aligned(args.q) && is_16_byte_aligned(args.k) && is_16_byte_aligned(args.v) &&
                 is_16_byte_aligned(args.y);
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
  p.row_max = args.row_max.data<float>();
  p.row_inv_sum = args.row_inv_sum.data<float>();
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

}  // namespace lamina::ops::cuda
