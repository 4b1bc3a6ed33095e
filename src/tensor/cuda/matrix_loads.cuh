#pragma once

// How a warp brings 16 × 16 squares of a half type from shared memory to where multiply_add (mma.cuh) takes them. Rows
// lie `pitch` bytes apart; where that is an odd multiple of 16, no two of eight rows meet in a bank.

#include <cstdint>

namespace lamina::cuda {

/// Four 8 × 8 matrices; lanes 8·m and following name the rows of the m-th one.
__device__ inline void load_squares(uint32_t (&to)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}
__device__ inline void load_squares_turned(uint32_t (&to)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}

/// The row and column that this lane names: the second matrix lies below the first, the others right of these; or the
/// second right of the first, the others below.
struct SquareLane {
  int row, column;
  static __device__ SquareLane downwards(int lane) { return {lane % 16, lane / 16 * 8}; }
  static __device__ SquareLane rightwards(int lane) { return {lane / 16 * 8 + lane % 8, lane / 8 % 2 * 8}; }
  __device__ uint32_t at(uint32_t first, int pitch) const { return first + row * pitch + column * 2; }
};

}  // namespace lamina::cuda
