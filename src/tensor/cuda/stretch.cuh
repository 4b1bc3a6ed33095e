#pragma once

// Stretches read and written in one access each.

#include "lamina/tensor/cuda/kernel.cuh"

namespace lamina::cuda {

/// A stretch in one access: where its elements are changed in between, the compiler takes both the copy and store_whole
/// to pieces of two elements.
template <class S>
__device__ inline S load_stretch(const void* from) {
  S values;
  if constexpr (sizeof(S) == 16) {
    const uint4 word = *static_cast<const uint4*>(from);
    __builtin_memcpy(&values, &word, sizeof(S));
  } else {
    values = *static_cast<const S*>(from);
  }
  return values;
}
template <class S>
__device__ inline void store_stretch(void* to, const S& values) {
  if constexpr (sizeof(S) == 16) {
    uint4 word;
    __builtin_memcpy(&word, &values, sizeof(S));
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};\n" ::"l"(__cvta_generic_to_global(to)), "r"(word.x),
                 "r"(word.y), "r"(word.z), "r"(word.w)
                 : "memory");
  } else {
    store_whole(to, values);
  }
}

}  // namespace lamina::cuda
