#pragma once

// Asynchronous copies to shared memory (cp.async). A thread that reads only the bytes it copied itself needs
// cp_async_wait(), but no __syncthreads(). Before it overwrites bytes that it has read, it must call __syncwarp(),
// which also keeps the compiler from moving reads after the copy.

#include <cuda_runtime_api.h>

#include <cstdint>

namespace lamina::cuda {

__device__ inline uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

/// Copies 16 bytes, or fills with zeros if `inside` is false.
__device__ inline void cp_async_16(uint32_t to, const void* from, bool inside) {
  const int bytes = inside ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(to), "l"(from), "r"(bytes));
}
__device__ inline void cp_async_commit() { asm volatile("cp.async.commit_group;\n" ::); }
/// Waits until at most kOpen of the committed groups are incomplete.
template <int kOpen = 0>
__device__ inline void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kOpen) : "memory");
}

}  // namespace lamina::cuda
