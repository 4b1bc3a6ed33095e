// Writes a few numbers, so launch latency dominates: the kernel overlaps with its predecessor (launch_dependent).
#include "lamina/ops/elementwise/count_on.h"
#include "lamina/tensor/cuda/kernel.cuh"

namespace lamina::ops::cuda {
namespace {

constexpr int kCountThreads = 256;

__global__ void count_on_kernel(int64_t* counters, int64_t count) {
  lamina::cuda::wait_for_previous();
  const int64_t i = blockIdx.x * int64_t{kCountThreads} + threadIdx.x;
  if (i < count) ++counters[i];
}

}  // namespace

void count_on(const Tensor& counters) {
  if (counters.numel() == 0) return;
  const auto blocks = static_cast<unsigned>(lamina::cuda::blocks_for(counters.numel(), kCountThreads));
  lamina::cuda::launch_dependent(count_on_kernel, dim3(blocks), dim3(kCountThreads), 0, counters.device(),
                                 counters.data<int64_t>(), counters.numel());
  lamina::cuda::check_launch("count_on");
}

}  // namespace lamina::ops::cuda
