#pragma once

// Tensor core product (mma.sync) of two small matrices of a 16-bit type, for one warp.

#include "lamina/tensor/cuda/kernel.cuh"

namespace lamina::cuda {

/// c += a · b for a warp: a [16, 16], b [16, 8] of type T, accumulated in f32. Fragments of lane 4·g + p: a[0], a[1]
/// are rows g and g + 8 at columns 2p, 2p + 1; a[2], a[3] the same rows at columns 2p + 8, 2p + 9; b0, b1 are column g
/// at the corresponding rows; c[0], c[1] are row g and c[2], c[3] row g + 8 at columns 2p, 2p + 1.
template <class T>
__device__ inline void mma_m16n8k16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
template <>
__device__ inline void mma_m16n8k16<__nv_bfloat16>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
__device__ inline void mma_m16n8k16<__half>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace lamina::cuda
