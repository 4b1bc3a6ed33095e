#pragma once

// ldmatrix: loads 16 × 16 squares of a 16-bit type from shared memory into the fragment layout of mma_m16n8k16
// (mma.cuh). Rows are `pitch` bytes apart. If the pitch is an odd multiple of 16, eight rows cause no bank conflicts.

#include <cstdint>

namespace lamina::cuda {

/// Loads four 8 × 8 matrices. Lanes 8m … 8m + 7 hold the row addresses of matrix m.
__device__ inline void ldmatrix_x4(uint32_t (&to)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}
__device__ inline void ldmatrix_x4_trans(uint32_t (&to)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}

/// The row and column whose address this lane must provide, for two arrangements of the four matrices. downwards:
/// matrix 1 is below matrix 0, matrices 2 and 3 are to their right. rightwards: matrix 1 is to the right of matrix 0,
/// matrices 2 and 3 are below them.
struct LdmatrixLane {
  int row, column;
  static __device__ LdmatrixLane downwards(int lane) { return {lane % 16, lane / 16 * 8}; }
  static __device__ LdmatrixLane rightwards(int lane) { return {lane / 16 * 8 + lane % 8, lane / 8 % 2 * 8}; }
  __device__ uint32_t at(uint32_t first, int pitch) const { return first + row * pitch + column * 2; }
};

}  // namespace lamina::cuda
