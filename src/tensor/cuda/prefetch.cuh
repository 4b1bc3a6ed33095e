#pragma once

// Operations that a kernel launched early (launch_dependent) may do before grid_dependency_wait(): prefetch, and let
// the next kernel start.

#include "lamina/tensor/cuda/kernel.cuh"

namespace lamina::cuda {

/// Prefetches a range into L2, like prefetch_l2. Size and address must be multiples of 16 bytes.
__device__ inline void prefetch_l2_bulk(const void* from, int bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(__cvta_generic_to_global(from)), "r"(bytes)
               : "memory");
#endif
}

/// Reads a value that the previous kernel may still be writing; bypasses L1. The result is only a guess, for example
/// for prefetching, and must be read again after grid_dependency_wait().
__device__ inline int64_t load_relaxed_l2(const int64_t* from) {
  long long value;
  asm volatile("ld.relaxed.gpu.global.s64 %0, [%1];" : "=l"(value) : "l"(__cvta_generic_to_global(from)));
  return value;
}

/// Lets the next kernel's blocks be scheduled as soon as there is room. That kernel waits for the end of this one
/// before it accesses memory, and this one ends only after it has waited for its predecessor. So waiting for one kernel
/// still means waiting for all earlier ones.
__device__ inline void trigger_dependents() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if (int64_t{gridDim.x} * gridDim.y * gridDim.z <= kMaxDependentLaunchBlocks)
    cudaTriggerProgrammaticLaunchCompletion();
#endif
}

}  // namespace lamina::cuda
