#pragma once

// What a kernel that is launched early (launch_dependent) may do for itself and for the next one before it waits.

#include "lamina/tensor/cuda/kernel.cuh"

namespace lamina::cuda {

/// A hint as fetch_ahead is, for a whole stretch: a multiple of 16 bytes at an address of whole 16 bytes.
__device__ inline void fetch_stretch_ahead(const void* from, int bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(__cvta_generic_to_global(from)), "r"(bytes)
               : "memory");
#endif
}

/// A number that the kernel before may still be writing, past the first-level cache: a guess, to be read again behind
/// the wait.
__device__ inline int64_t read_early(const int64_t* from) {
  long long value;
  asm volatile("ld.relaxed.gpu.global.s64 %0, [%1];" : "=l"(value) : "l"(__cvta_generic_to_global(from)));
  return value;
}

/// The next kernel's blocks may take their places already, where there are any beside this kernel's. It waits for this
/// kernel's end before it touches memory, and this one ends only after it has waited for the one before: waiting for
/// one stays waiting for all.
__device__ inline void let_next_begin() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if (int64_t{gridDim.x} * gridDim.y * gridDim.z <= kMostEarlyBlocks) cudaTriggerProgrammaticLaunchCompletion();
#endif
}

}  // namespace lamina::cuda
