#pragma once

#include "lamina/tensor/cuda/kernel.cuh"

namespace lamina::cuda {

/// L2 eviction policies: evict_first for data that is not read again soon, evict_normal otherwise.
__device__ inline uint64_t evict_first_policy() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ inline uint64_t evict_normal_policy() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

/// Loads 16 bytes, or returns zeros if `there` is false, with one predicated instruction, so that no branch separates
/// two loads. It is volatile, so that loads are issued in program order. The evict_first variants bypass L1.
#define LAMINA_LOAD_WORDS(instruction, ...)                                                         \
  asm volatile(                                                                                     \
      "{ .reg .pred there; setp.ne.b32 there, %5, 0; mov.b32 %0, 0; mov.b32 %1, 0; mov.b32 %2, 0; " \
      "mov.b32 %3, 0; @there " instruction "; }"                                                    \
      : "=&r"(words.x), "=&r"(words.y), "=&r"(words.z), "=&r"(words.w)                              \
      : "l"(__cvta_generic_to_global(from)), "r"(static_cast<int>(there))__VA_OPT__(, ) __VA_ARGS__)
__device__ inline uint4 load_words(const void* from, bool there) {
  uint4 words;
  LAMINA_LOAD_WORDS("ld.global.v4.u32 {%0, %1, %2, %3}, [%4]");
  return words;
}
__device__ inline uint4 load_evict_first(const void* from, bool there) {
  uint4 words;
  LAMINA_LOAD_WORDS("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4]");
  return words;
}
__device__ inline uint4 load_evict_first(const void* from, bool there, uint64_t policy) {
  uint4 words;
  LAMINA_LOAD_WORDS("ld.global.cg.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %6", "l"(policy));
  return words;
}
#undef LAMINA_LOAD_WORDS

}  // namespace lamina::cuda
