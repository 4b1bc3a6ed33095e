// Counters are few, so launch latency dominates. The kernel starts while its predecessor still runs (launch_dependent).
#include "lamina/ops/elementwise/increment_kernel.h"
#include "lamina/tensor/cuda/kernel.cuh"

namespace lamina::ops::cuda {
namespace {

constexpr int kCountThreads = 256;

__global__ void increment_kernel(int64_t* counters, int64_t count) {
  lamina::cuda::grid_dependency_wait();
  const int64_t i = blockIdx.x * int64_t{kCountThreads} + threadIdx.x;
  if (i < count) ++counters[i];
}

}  // namespace

void increment_(const Tensor& counters) {
  if (counters.numel() == 0) return;
  const auto blocks = static_cast<unsigned>(lamina::cuda::blocks_for(counters.numel(), kCountThreads));
  lamina::cuda::launch_dependent(increment_kernel, dim3(blocks), dim3(kCountThreads), 0, counters.device(),
                                 counters.data<int64_t>(), counters.numel());
  lamina::cuda::check_launch("increment_");
}

}  // namespace lamina::ops::cuda
