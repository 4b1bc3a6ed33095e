#pragma once

// Accesses that stay one instruction. What is assembled from numbers that were computed one by one, or taken apart into
// such, the compiler may load and store in pieces of two or four bytes, store_whole notwithstanding; a pack written so
// takes four times as long.

#include "lamina/tensor/cuda/kernel.cuh"

namespace lamina::cuda {

/// Reads a pack or stretch.
template <class P>
__device__ inline P load_at_once(const void* from) {
  if constexpr (sizeof(P) < 16) return *static_cast<const P*>(from);
  const uint4 word = *static_cast<const uint4*>(from);
  P values;
  __builtin_memcpy(&values, &word, sizeof(P));
  return values;
}

/// Reads 16 bytes of global memory that nobody writes while the kernel runs: unlike other reads it may pass stores, and
/// yet stays behind wait_for_previous().
__device__ inline uint4 load_constant(const void* from) {
  uint4 word;
  asm volatile("ld.global.nc.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(word.x), "=r"(word.y), "=r"(word.z), "=r"(word.w)
               : "l"(__cvta_generic_to_global(from)));
  return word;
}

/// Writes a pack or stretch to global memory.
template <class P>
__device__ inline void store_at_once(void* to, const P& values) {
  if constexpr (sizeof(P) < 4) return store_whole(to, values);
  uint32_t words[(sizeof(P) + 3) / 4];
  __builtin_memcpy(words, &values, sizeof(P));
  const auto at = static_cast<uint64_t>(__cvta_generic_to_global(to));
  if constexpr (sizeof(P) == 16) {
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(words[0]), "r"(words[1]), "r"(words[2]),
                 "r"(words[3])
                 : "memory");
  } else if constexpr (sizeof(P) == 8) {
    asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(at), "r"(words[0]), "r"(words[1]) : "memory");
  } else if constexpr (sizeof(P) == 4) {
    asm volatile("st.global.b32 [%0], %1;" ::"l"(at), "r"(words[0]) : "memory");
  }
}

}  // namespace lamina::cuda
