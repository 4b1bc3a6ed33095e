#pragma once

// What kernels on Hopper's matrix units share (wgmma: compute capability 9.0, compiled for sm_90a).

#include "lamina/tensor/cuda/kernel.cuh"

namespace lamina::cuda {

inline bool has_wgmma(const Device& device, const char* op) {
  int major = 0;
  int minor = 0;
  LAMINA_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device.index()), op);
  LAMINA_CUDA(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device.index()), op);
  return major == 9 && minor == 0;
}

/// How wgmma finds an operand in shared memory: rows of 128 bytes whose 16-byte chunks are exchanged by row, groups of
/// eight rows one behind the other. Where the row is k, boxes of 64 results are `apart` bytes apart; where rows lie
/// along k, it is not used.
__device__ inline uint64_t operand_at(uint32_t address, int apart = 16) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  constexpr uint64_t kEightRows = uint64_t{1024 >> 4} << 32;
  return kSwizzle128 | kEightRows | (static_cast<uint64_t>(apart >> 4) << 16) | ((address & 0x3ffff) >> 4);
}

/// What was written to shared memory is there for the products and the copies that follow.
__device__ inline void publish_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
/// What was written to registers is there for the products that follow.
__device__ inline void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
/// The products since the last call are a group.
__device__ inline void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/// Waits until all but the newest kPending groups are done.
template <int kPending = 0>
__device__ inline void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

}  // namespace lamina::cuda
