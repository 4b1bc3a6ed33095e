// The sum over ranks on a GPU. A thread owns one element at a time and adds its values in the same binary tree over
// ranks as the CPU (ordered_sum.cpp). No two threads touch the same element, so results are bit-identical to the CPU's.

#include <cuda_bf16.h>

#include "lamina/comm/ordered_sum_cuda.h"
#include "lamina/tensor/cuda/runtime.h"

namespace lamina::comm {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void add_tree(T* parts, int ranks, int64_t count) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t k = blockIdx.x * int64_t{kThreads} + threadIdx.x; k < count; k += step) {
    for (int stride = 1; stride < ranks; stride *= 2) {
      for (int r = 0; r + stride < ranks; r += 2 * stride) parts[r * count + k] += parts[(r + stride) * count + k];
    }
  }
}

/// Like add_bf16 on the CPU: adds in f32 in rank order, and rounds once.
__global__ void add_bf16(__nv_bfloat16* parts, int ranks, int64_t count) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t k = blockIdx.x * int64_t{kThreads} + threadIdx.x; k < count; k += step) {
    float sum = 0;
    for (int r = 0; r < ranks; ++r) sum += __bfloat162float(parts[r * count + k]);
    parts[k] = __float2bfloat16(sum);
  }
}

template <class T>
void launch(void* parts, int ranks, int64_t count, cudaStream_t stream) {
  add_tree<<<cuda::blocks_for(count, kThreads), kThreads, 0, stream>>>(static_cast<T*>(parts), ranks, count);
  cuda::check_launch("ordered_sum");
}

}  // namespace

void ordered_sum_cuda(void* parts, int ranks, int64_t count, DType dtype, cudaStream_t stream) {
  if (count == 0 || ranks == 1) return;
  switch (dtype) {
    case DType::f32: return launch<float>(parts, ranks, count, stream);
    case DType::f64: return launch<double>(parts, ranks, count, stream);
    case DType::i64: return launch<int64_t>(parts, ranks, count, stream);
    case DType::bf16:
      add_bf16<<<cuda::blocks_for(count, kThreads), kThreads, 0, stream>>>(static_cast<__nv_bfloat16*>(parts), ranks,
                                                                           count);
      return cuda::check_launch("ordered_sum");
    default:
      throw Error(str("a sum over ranks of ", dtype, " elements; expected f32, f64, bf16 or i64, convert first"));
  }
}

}  // namespace lamina::comm
