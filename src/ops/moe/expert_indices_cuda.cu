// Counts how often each expert was chosen. Blocks count in shared memory and then add their counts with one integer
// atomic per expert. Integer sums do not depend on the order, so the result is deterministic.
#include "lamina/ops/moe/expert_indices.h"

#include <algorithm>

#include "lamina/tensor/cuda/kernel.cuh"

namespace lamina::ops::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kInShared = 8192;  // experts whose counts fit into shared memory

__global__ void count_kernel(const int64_t* indices, int64_t count, int64_t experts, unsigned long long* counts,
                             lamina::cuda::FaultSlot* faults) {
  extern __shared__ unsigned found[];
  const bool shared = experts <= kInShared;
  for (int64_t e = threadIdx.x; shared && e < experts; e += kThreads) found[e] = 0;
  __syncthreads();
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < count; i += int64_t{gridDim.x} * kThreads) {
    const int64_t expert = indices[i];
    if (expert < 0 || expert >= experts) {
      lamina::cuda::report(faults, lamina::cuda::Fault::expert, expert);
    } else if (shared) {
      atomicAdd(found + expert, 1U);
    } else {
      atomicAdd(counts + expert, 1ULL);
    }
  }
  __syncthreads();
  for (int64_t e = threadIdx.x; shared && e < experts; e += kThreads) {
    if (found[e] > 0) atomicAdd(counts + e, static_cast<unsigned long long>(found[e]));
  }
}

}  // namespace

void count_experts(const char* op, const Tensor& indices, const Tensor& counts) {
  const Device& device = indices.device();
  const int64_t experts = counts.numel();
  const cudaStream_t stream = lamina::cuda::stream_of(device);
  if (experts == 0) return;
  LAMINA_CUDA(cudaMemsetAsync(counts.raw(), 0, static_cast<size_t>(counts.nbytes()), stream), op);
  if (indices.numel() == 0) return;
  const int blocks = std::min(lamina::cuda::blocks_for(indices.numel(), 4 * kThreads), lamina::cuda::sm_count(device));
  const size_t bytes = experts <= kInShared ? static_cast<size_t>(experts) * sizeof(unsigned) : 0;
  count_kernel<<<blocks, kThreads, bytes, stream>>>(indices.data<int64_t>(), indices.numel(), experts,
                                                    reinterpret_cast<unsigned long long*>(counts.data<int64_t>()),
                                                    lamina::cuda::fault_slot(device));
  lamina::cuda::check_launch(op);
}

}  // namespace lamina::ops::cuda
