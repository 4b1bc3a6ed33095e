#pragma once

// Stores that stay one instruction. What is assembled from numbers that were computed one by one, the compiler may take
// apart again and store in pieces of two or four bytes; a pack written so takes four times as long.

#include <cstdint>

namespace lamina::cuda {

/// Writes 4, 8 or 16 bytes of packs or stretches to global memory at once.
template <class P>
__device__ inline void store_at_once(void* to, const P& values) {
  static_assert(sizeof(P) == 4 || sizeof(P) == 8 || sizeof(P) == 16);
  uint32_t words[sizeof(P) / 4];
  __builtin_memcpy(words, &values, sizeof(P));
  const auto at = static_cast<uint64_t>(__cvta_generic_to_global(to));
  if constexpr (sizeof(P) == 16) {
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(words[0]), "r"(words[1]), "r"(words[2]),
                 "r"(words[3])
                 : "memory");
  } else if constexpr (sizeof(P) == 8) {
    asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(at), "r"(words[0]), "r"(words[1]) : "memory");
  } else {
    asm volatile("st.global.b32 [%0], %1;" ::"l"(at), "r"(words[0]) : "memory");
  }
}

}  // namespace lamina::cuda
