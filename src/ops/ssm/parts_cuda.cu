// Adds partial sums in a fixed order: a thread owns one element and loops over the parts. Loads are coalesced, and
// loads of several parts are in flight at once.
#include "lamina/ops/ssm/parts_cuda.h"

#include "lamina/tensor/cuda/kernel.cuh"

namespace lamina::ops::cuda {
namespace {

constexpr int kThreads = 128;

template <class T>
__global__ void add_parts_kernel(const T* parts, int64_t count, int64_t stride, int64_t size, float* total) {
  const int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  if (i >= size) return;
  T sum = 0;
#pragma unroll 8
  for (int64_t part = 0; part < count; ++part) sum += parts[part * stride + i];
  total[i] = static_cast<float>(sum);
}

template <class T>
void add(const char* op, const T* parts, int64_t count, int64_t stride, const Tensor& total) {
  if (!total.defined() || total.numel() == 0) return;
  const Device& device = total.device();
  add_parts_kernel<<<lamina::cuda::blocks_for(total.numel(), kThreads), kThreads, 0, lamina::cuda::stream_of(device)>>>(
      parts, count, stride, total.numel(), total.data<float>());
  lamina::cuda::check_launch(op);
}

}  // namespace

void add_parts(const char* op, const float* parts, int64_t count, int64_t stride, const Tensor& total) {
  add(op, parts, count, stride, total);
}
void add_parts(const char* op, const double* parts, int64_t count, int64_t stride, const Tensor& total) {
  add(op, parts, count, stride, total);
}

void clear(const char* op, const Tensor& tensor) {
  if (!tensor.defined() || tensor.numel() == 0) return;
  LAMINA_CUDA(
      cudaMemsetAsync(tensor.raw(), 0, static_cast<size_t>(tensor.nbytes()), lamina::cuda::stream_of(tensor.device())),
      op);
}

}  // namespace lamina::ops::cuda
