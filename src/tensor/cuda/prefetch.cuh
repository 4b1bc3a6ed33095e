#pragma once

// Prefetch and other operations that an early launched kernel (launch_dependent) may do before grid_dependency_wait().

#include "lamina/tensor/cuda/kernel.cuh"

namespace lamina::cuda {

/// Prefetches a range into L2; a hint like prefetch_l2. Size and address must be multiples of 16 bytes.
__device__ inline void prefetch_l2_bulk(const void* from, int bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(__cvta_generic_to_global(from)), "r"(bytes)
               : "memory");
#endif
}

/// Reads a value that the previous kernel may still be writing, bypassing L1. The result is a guess (for prefetching,
/// say) and must be read again after grid_dependency_wait().
__device__ inline int64_t load_relaxed_l2(const int64_t* from) {
  long long value;
  asm volatile("ld.relaxed.gpu.global.s64 %0, [%1];" : "=l"(value) : "l"(__cvta_generic_to_global(from)));
  return value;
}

/// Lets the blocks of the next kernel be scheduled as soon as there is room. Before touching memory that kernel waits
/// for the end of this one, which itself ends only after waiting for its predecessor: so waiting for one kernel still
/// means waiting for all.
__device__ inline void trigger_dependents() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if (int64_t{gridDim.x} * gridDim.y * gridDim.z <= kMaxDependentLaunchBlocks)
    cudaTriggerProgrammaticLaunchCompletion();
#endif
}

}  // namespace lamina::cuda
