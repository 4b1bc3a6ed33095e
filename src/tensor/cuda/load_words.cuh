#pragma once

#include "lamina/tensor/cuda/kernel.cuh"

namespace lamina::cuda {

/// 16 bytes, zeros where there are none: one predicated instruction, so that no branch stands between two loads, and
/// volatile, so that loads are asked for in the order written. What is read `once` goes past the first-level cache.
#define LAMINA_LOAD_WORDS(instruction)                                                              \
  asm volatile(                                                                                     \
      "{ .reg .pred there; setp.ne.b32 there, %5, 0; mov.b32 %0, 0; mov.b32 %1, 0; mov.b32 %2, 0; " \
      "mov.b32 %3, 0; @there " instruction ".v4.u32 {%0, %1, %2, %3}, [%4]; }"                      \
      : "=&r"(words.x), "=&r"(words.y), "=&r"(words.z), "=&r"(words.w)                              \
      : "l"(__cvta_generic_to_global(from)), "r"(static_cast<int>(there)))
__device__ inline uint4 load_words(const void* from, bool there) {
  uint4 words;
  LAMINA_LOAD_WORDS("ld.global");
  return words;
}
__device__ inline uint4 load_words_once(const void* from, bool there) {
  uint4 words;
  LAMINA_LOAD_WORDS("ld.global.cg");
  return words;
}
#undef LAMINA_LOAD_WORDS

}  // namespace lamina::cuda
