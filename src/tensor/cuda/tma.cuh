#pragma once

// TMA copies of tensor boxes (tensor_map.h) to shared memory (compute capability 9.0 and above), and the mbarriers that
// signal their completion. A phase of an mbarrier ends when all expected arrivals have happened and all announced bytes
// have been written.

#include <cuda.h>

#include <cstdint>

namespace lamina::cuda {

/// Position in a ring of kSize pipeline stages: the stage, and the mbarrier parity, which flips at every wrap-around.
template <int kSize>
struct Ring {
  int index = 0;
  uint32_t parity = 0;
  __device__ void next() {
    if (++index == kSize) index = 0, parity ^= 1;
  }
};

/// Initializes an mbarrier whose phases complete after `count` arrivals. Other threads may use it after
/// fence_barrier_init() and __syncthreads().
__device__ inline void barrier_init(uint32_t barrier, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
__device__ inline void fence_barrier_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
/// Arrives at the barrier, and announces `bytes` of copies in this phase.
__device__ inline void barrier_expect(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ inline void barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
/// How many arrivals barrier_arrive_warp() causes per warp. Normally one lane arrives for all; racecheck cannot follow
/// that, so then every lane arrives.
#ifdef LAMINA_RACECHECK
inline constexpr int kArrivals = 32;
#else
inline constexpr int kArrivals = 1;
#endif
/// Arrives at the barrier when all lanes of the warp are done.
__device__ inline void barrier_arrive_warp(uint32_t barrier) {
  __syncwarp();
  if (kArrivals > 1 || threadIdx.x % 32 == 0) barrier_arrive(barrier);
}
/// Waits for the phase with this parity. A new barrier is in phase 0, so waiting on parity 1 returns at once.
__device__ inline void barrier_wait(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra over;\n"
      "bra again;\n"
      "over:\n"
      "}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
/// Copies `bytes` to shared memory. Size and addresses must be multiples of 16 bytes.
__device__ inline void bulk_copy(uint32_t to, const void* from, int bytes, uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(barrier)
               : "memory");
}
/// bulk_copy() with an L2 eviction policy (l2_policy_loads.cuh).
__device__ inline void bulk_copy(uint32_t to, const void* from, int bytes, uint32_t barrier, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
          "r"(to),
      "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(barrier), "l"(policy)
      : "memory");
}
/// Copies the box that starts at the given indices, innermost index first.
__device__ inline void tma_load(uint32_t to, const CUtensorMap& map, uint32_t barrier, int64_t column, int64_t row) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
          to),
      "l"(&map), "r"(static_cast<int>(column)), "r"(static_cast<int>(row)), "r"(barrier)
      : "memory");
}
__device__ inline void tma_load(uint32_t to, const CUtensorMap& map, uint32_t barrier, int64_t column, int64_t row,
                                int64_t third) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::
          "r"(to),
      "l"(&map), "r"(static_cast<int>(column)), "r"(static_cast<int>(row)), "r"(static_cast<int>(third)), "r"(barrier)
      : "memory");
}
__device__ inline void tma_load(uint32_t to, const CUtensorMap& map, uint32_t barrier, int64_t column, int64_t row,
                                int64_t third, int64_t fourth) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], "
      "[%6];" ::"r"(to),
      "l"(&map), "r"(static_cast<int>(column)), "r"(static_cast<int>(row)), "r"(static_cast<int>(third)),
      "r"(static_cast<int>(fourth)), "r"(barrier)
      : "memory");
}

}  // namespace lamina::cuda
