#pragma once

// Loads and stores that are one instruction. Otherwise the compiler may split a 16-byte access into 2- or 4-byte ones
// if elements are computed or used one by one, even with store_vector_plain(); that is 4× slower.

#include "lamina/tensor/cuda/kernel.cuh"

namespace lamina::cuda {

/// Loads a Pack or Vec with one instruction.
template <class P>
__device__ inline P load_vector(const void* from) {
  if constexpr (sizeof(P) < 16) return *static_cast<const P*>(from);
  const uint4 word = *static_cast<const uint4*>(from);
  P values;
  __builtin_memcpy(&values, &word, sizeof(P));
  return values;
}

/// Loads 16 bytes of global memory that stay constant while the kernel runs. The compiler may move this load across
/// stores, but not before grid_dependency_wait().
__device__ inline uint4 load_constant(const void* from) {
  uint4 word;
  asm volatile("ld.global.nc.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(word.x), "=r"(word.y), "=r"(word.z), "=r"(word.w)
               : "l"(__cvta_generic_to_global(from)));
  return word;
}

/// Stores a Pack or Vec to global memory with one instruction.
template <class P>
__device__ inline void store_vector(void* to, const P& values) {
  if constexpr (sizeof(P) < 4) return store_vector_plain(to, values);
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
