#pragma once

// Copies of boxes of a tensor (tensor_map.h) to shared memory by the copy engine of compute capability 9 and above, and
// the barriers in shared memory by which threads learn of them. A barrier goes through phases: each ends when all that
// it counts have arrived and all bytes that were announced are there.

#include <cuda.h>

#include <cstdint>

namespace lamina::cuda {

/// A place in a ring of kSize, and the parity of how often it has come round.
template <int kSize>
struct Ring {
  int index = 0;
  uint32_t turn = 0;
  __device__ void next() {
    if (++index == kSize) index = 0, turn ^= 1;
  }
};

/// For a phase that so many arrive in. Others may use it after publish_barriers() and a barrier of the block.
__device__ inline void barrier_init(uint32_t barrier, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
__device__ inline void publish_barriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
/// Arrives, and announces bytes of copies.
__device__ inline void barrier_expect(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ inline void barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
/// What a barrier counts for a warp that arrives by warp_arrives(): one lane for all, which racecheck does not follow.
#ifdef LAMINA_RACECHECK
inline constexpr int kArrivals = 32;
#else
inline constexpr int kArrivals = 1;
#endif
/// All lanes are done with what others wait for.
__device__ inline void warp_arrives(uint32_t barrier) {
  __syncwarp();
  if (kArrivals > 1 || threadIdx.x % 32 == 0) barrier_arrive(barrier);
}
/// Until the phase of this parity is over; of a new barrier the first has parity 0, and the one before it is over.
__device__ inline void barrier_wait(uint32_t barrier, uint32_t turn) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra over;\n"
      "bra again;\n"
      "over:\n"
      "}\n" ::"r"(barrier),
      "r"(turn)
      : "memory");
}
/// Whole 16 bytes, at such addresses.
__device__ inline void copy_bytes(uint32_t to, const void* from, int bytes, uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(barrier)
               : "memory");
}
/// The same, kept by the second-level cache as a policy says (load_words.cuh).
__device__ inline void copy_bytes(uint32_t to, const void* from, int bytes, uint32_t barrier, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
          "r"(to),
      "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(barrier), "l"(policy)
      : "memory");
}
/// From these indices on, innermost first.
__device__ inline void copy_box(uint32_t to, const CUtensorMap& map, uint32_t barrier, int64_t column, int64_t row) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
          to),
      "l"(&map), "r"(static_cast<int>(column)), "r"(static_cast<int>(row)), "r"(barrier)
      : "memory");
}
__device__ inline void copy_box(uint32_t to, const CUtensorMap& map, uint32_t barrier, int64_t column, int64_t row,
                                int64_t third) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::
          "r"(to),
      "l"(&map), "r"(static_cast<int>(column)), "r"(static_cast<int>(row)), "r"(static_cast<int>(third)), "r"(barrier)
      : "memory");
}
__device__ inline void copy_box(uint32_t to, const CUtensorMap& map, uint32_t barrier, int64_t column, int64_t row,
                                int64_t third, int64_t fourth) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], "
      "[%6];" ::"r"(to),
      "l"(&map), "r"(static_cast<int>(column)), "r"(static_cast<int>(row)), "r"(static_cast<int>(third)),
      "r"(static_cast<int>(fourth)), "r"(barrier)
      : "memory");
}

}  // namespace lamina::cuda
