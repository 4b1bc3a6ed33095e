// A block sums the squares of one chunk in f64. That runs at half the f32 rate on data center GPUs, which memory
// latency hides. One block then adds the chunks' sums in a fixed order and finds the first that is not finite. The sum
// stays on the device; only what the host needs is copied.
#include <algorithm>
#include <cmath>

#include "lamina/ops/optim/grad_norm_kernel.h"
#include "lamina/ops/optim/slots.cuh"
#include "lamina/ops/optim/squares.cuh"

namespace lamina::ops::cuda {
namespace {

using namespace lamina::cuda;  // NOLINT: kernel helpers

constexpr int kTotalThreads = 1024;

struct Entry {
  void* values;
  int64_t n;
  DType type;
  bool packed;
};

std::vector<Entry> entries_of(const char* op, const std::vector<Tensor>& tensors) {
  std::vector<Entry> entries;
  for (const Tensor& tensor : tensors) {
    check_slot_type(op, tensor.dtype());
    entries.push_back({tensor.raw(), tensor.numel(), tensor.dtype(), is_packed({tensor.raw()})});
  }
  return entries;
}

/// Sum over up to 1024 threads, returned in thread 0; `scratch` holds 32 values.
__device__ double block_sum_f64(double value, double* scratch) {
  for (int step = kWarp / 2; step > 0; step /= 2) value += __shfl_xor_sync(kAllLanes, value, step);
  if (threadIdx.x % kWarp == 0) scratch[threadIdx.x / kWarp] = value;
  __syncthreads();
  double total = 0.0;
  if (threadIdx.x == 0) {
    for (int k = 0; k < static_cast<int>(blockDim.x) / kWarp; ++k) total += scratch[k];
  }
  return total;
}

template <int kWidth>
__device__ inline double squares_at(const Entry& entry, int64_t i) {
  float values[kWidth];
  load_as(entry.values, entry.type, i, values);
  double sum = 0.0;
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    const auto value = static_cast<double>(values[j]);
    sum = fma(value, value, sum);
  }
  return sum;
}

__global__ void __launch_bounds__(kSlotThreads)
    squares_kernel(const __grid_constant__ Batch<Entry> batch, int chunk, double* partial) {
  __shared__ double scratch[kWarp];
  const int index = entry_of(batch);
  const Entry& entry = batch.entries[index];
  double sum = 0.0;
  for_each_in_chunk(
      entry, blockIdx.x - batch.starts[index], chunk, [&](int64_t i) { sum += squares_at<kSlotWidth>(entry, i); },
      [&](int64_t i) { sum += squares_at<1>(entry, i); });
  sum = block_sum_f64(sum, scratch);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kTotalThreads) total_kernel(const double* partial, int64_t chunks, double* result) {
  __shared__ double scratch[kWarp];
  __shared__ unsigned long long first_bad;
  if (threadIdx.x == 0) first_bad = ~0ULL;
  __syncthreads();
  double sum = 0.0;
  for (int64_t i = threadIdx.x; i < chunks; i += kTotalThreads) {
    sum += partial[i];
    if (!isfinite(partial[i])) atomicMin(&first_bad, static_cast<unsigned long long>(i));
  }
  sum = block_sum_f64(sum, scratch);  // its barrier publishes first_bad
  if (threadIdx.x != 0) return;
  result[0] = sum;
  result[1] = first_bad == ~0ULL ? -1.0 : static_cast<double>(first_bad);
}

__global__ void factor_kernel(const double* squares, double max_norm, float* norm, float* factor) {
  const double length = sqrt(*squares);
  *norm = static_cast<float>(length);
  *factor = isfinite(length) ? static_cast<float>(fmin(1.0, max_norm / (length + 1e-6))) : -1.0F;
}

template <int kWidth>
__device__ inline void scale_at(const Entry& entry, float factor, int64_t i) {
  float values[kWidth];
  load_as(entry.values, entry.type, i, values);
#pragma unroll
  for (int j = 0; j < kWidth; ++j) values[j] *= factor;
  store_as(values, entry.values, entry.type, i);
}

__global__ void __launch_bounds__(kSlotThreads) scale_kernel(const __grid_constant__ Batch<Entry> batch, float factor) {
  const int index = entry_of(batch);
  const Entry& entry = batch.entries[index];
  for_each_in_chunk(
      entry, blockIdx.x - batch.starts[index], kSquaresChunk,
      [&](int64_t i) { scale_at<kSlotWidth>(entry, factor, i); }, [&](int64_t i) { scale_at<1>(entry, factor, i); });
}

/// The first NaN or infinity of chunk `bad`, searched on the host because it is rare.
std::optional<BadElement> find_bad(const std::vector<Tensor>& tensors, int64_t bad) {
  for (size_t index = 0; index < tensors.size(); ++index) {
    const int64_t n = tensors[index].numel();
    const int64_t chunks = (n + kSquaresChunk - 1) / kSquaresChunk;
    if (bad >= chunks) {
      bad -= chunks;
      continue;
    }
    const int64_t begin = bad * kSquaresChunk;
    const Tensor chunk =
        tensors[index].detach().reshape(Shape{n}).slice(0, begin, std::min<int64_t>(kSquaresChunk, n - begin));
    const std::vector<double> values = chunk.contiguous().to(Device::cpu(1)).to_vector<double>();
    for (size_t i = 0; i < values.size(); ++i) {
      if (!std::isfinite(values[i])) return BadElement{index, begin + static_cast<int64_t>(i), values[i]};
    }
  }
  return std::nullopt;
}

/// [chunks] f64: Σ x² of every `chunk` elements of each tensor.
Tensor squares_of_chunks(const char* op, const std::vector<Tensor>& tensors, int chunk) {
  const Device& device = tensors[0].device();
  int64_t chunks = 0;
  for (const Tensor& tensor : tensors) chunks += (tensor.numel() + chunk - 1) / chunk;
  const Tensor sums = Tensor::empty(Shape{chunks}, DType::f64, device);
  each_batch(entries_of(op, tensors), chunk, [&](const Batch<Entry>& batch, int64_t before) {
    squares_kernel<<<batch.starts[batch.count], kSlotThreads, 0, stream_of(device)>>>(batch, chunk,
                                                                                      sums.data<double>() + before);
    check_launch(op);
  });
  return sums;
}

}  // namespace

Tensor sum_of_squares(const char* op, const std::vector<Tensor>& tensors) {
  const Device& device = tensors[0].device();
  const Tensor partial = squares_of_chunks(op, tensors, kSquaresChunk);
  const Tensor result = Tensor::empty(Shape{2}, DType::f64, device);
  total_kernel<<<1, kTotalThreads, 0, stream_of(device)>>>(partial.data<double>(), partial.numel(),
                                                           result.data<double>());
  check_launch(op);
  return result;
}

void chunk_squares(ChunkSquares& args) {
  args.sums = squares_of_chunks("chunk_squares", args.tensors, static_cast<int>(args.chunk))
                  .to(Device::cpu(1))
                  .to_vector<double>();
}

void sum_of_squares(const std::vector<Tensor>& tensors, GradNorm& result) {
  const std::vector<double> found = sum_of_squares("global_norm", tensors).to(Device::cpu(1)).to_vector<double>();
  if (found[1] >= 0) result.bad = find_bad(tensors, static_cast<int64_t>(found[1]));
  result.norm = std::sqrt(found[0]);
}

void clip_factor(const ClipFactor& args) {
  const Tensor squares = sum_of_squares("clip_factor", args.grads);
  factor_kernel<<<1, 1, 0, stream_of(squares.device())>>>(squares.data<double>(), args.max_norm,
                                                          args.norm.data<float>(), args.factor.data<float>());
  check_launch("clip_factor");
}

void scale_tensors(const std::vector<Tensor>& tensors, double factor) {
  const Device& device = tensors[0].device();
  each_batch(entries_of("scale_", tensors), kSquaresChunk, [&](const Batch<Entry>& batch, int64_t /*before*/) {
    scale_kernel<<<batch.starts[batch.count], kSlotThreads, 0, stream_of(device)>>>(batch, static_cast<float>(factor));
    check_launch("scale_");
  });
}

}  // namespace lamina::ops::cuda
