#pragma once

// Helpers for wgmma, the warpgroup tensor core instructions of Hopper (compute capability 9.0, compiled for sm_90a).

#include "lamina/tensor/cuda/kernel.cuh"

namespace lamina::cuda {

inline bool has_wgmma(const Device& device, const char* op) {
  int major = 0;
  int minor = 0;
  LAMINA_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device.index()), op);
  LAMINA_CUDA(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device.index()), op);
  return major == 9 && minor == 0;
}

/// Shared memory descriptor of a wgmma operand with 128-byte swizzle: rows of 128 bytes, in groups of eight. `apart` is
/// the distance in bytes between boxes of 64 elements of an MN-major operand; K-major operands do not use it.
__device__ inline uint64_t smem_descriptor(uint32_t address, int apart = 16) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  constexpr uint64_t kEightRows = uint64_t{1024 >> 4} << 32;
  return kSwizzle128 | kEightRows | (static_cast<uint64_t>(apart >> 4) << 16) | ((address & 0x3ffff) >> 4);
}

/// Makes writes to shared memory visible to later wgmma and TMA operations.
__device__ inline void fence_async_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
/// Makes register writes visible to later wgmma operations.
__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
/// Commits all products since the last commit as one group.
__device__ inline void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/// Waits until at most the newest kPending groups are incomplete.
template <int kPending = 0>
__device__ inline void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

}  // namespace lamina::cuda
