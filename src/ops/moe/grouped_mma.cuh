#pragma once

// Grouped GEMM with 16-bit operands on tensor cores (wmma). A block of eight warps computes a tile of 128 × 128
// results, a warp 64 × 32 of it, accumulated in f32. Operand tiles of depth 32 are copied to shared memory with
// cp.async in three stages. They keep their layout in memory and are read as row- or column-major. If rows are not
// multiples of 16 bytes, they are copied element by element.

#include <mma.h>

#include "lamina/ops/moe/row_tile.cuh"

namespace lamina::ops::cuda {

constexpr int kMmaTile = 128;
constexpr int kMmaDepth = 32;
constexpr int kMmaThreads = 256;
constexpr int kMmaStages = 3;
constexpr int kMmaPad = 8;
/// Elements of one operand's tile with padding. The tile is [128][32] or [32][128]; the first needs more memory.
constexpr int kMmaElements = kMmaTile * (kMmaDepth + kMmaPad);
constexpr size_t kMmaBytes = size_t{2} * kMmaStages * kMmaElements * 2;

/// A matrix in memory with row stride `stride`. `packed`: rows are aligned to 16 bytes and multiples of 16 bytes.
template <class T>
struct MmaOperand {
  const T* first;
  int64_t rows, columns, stride;
  bool packed;
};

template <class T>
bool in_packs(const void* pointer, int64_t columns) {
  return columns % 8 == 0 && reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
}

__device__ inline void cp_async_16(void* to, const void* from, bool real) {
  const auto target = static_cast<unsigned>(__cvta_generic_to_shared(to));
  const int bytes = real ? 16 : 0;  // cp.async fills the remaining bytes with zeros
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(target), "l"(from), "r"(bytes));
}

/// Copies rows [row, row + kRows) and columns [column, column + kColumns) to a tile [kRows][kColumns + padding], with
/// zeros outside the matrix.
template <int kRows, int kColumns, class T>
__device__ void load_tile(const MmaOperand<T>& from, int64_t row, int64_t column, T* to) {
  constexpr int kPacks = kColumns / 8;
#pragma unroll
  for (int i = 0; i < kRows * kPacks / kMmaThreads; ++i) {
    const int pack = static_cast<int>(threadIdx.x) + i * kMmaThreads;
    const int64_t r = row + pack / kPacks;
    const int64_t c = column + pack % kPacks * 8;
    T* target = to + pack / kPacks * (kColumns + kMmaPad) + pack % kPacks * 8;
    if (from.packed) {
      const bool real = r < from.rows && c < from.columns;
      cp_async_16(target, real ? from.first + r * from.stride + c : from.first, real);
      continue;
    }
    union {
      uint4 bits;
      uint16_t values[8];
    } held;
    held.bits = make_uint4(0, 0, 0, 0);
    for (int k = 0; k < 8; ++k) {
      if (r < from.rows && c + k < from.columns) {
        held.values[k] = reinterpret_cast<const uint16_t*>(from.first)[r * from.stride + c + k];
      }
    }
    *reinterpret_cast<uint4*>(target) = held.bits;
  }
}

/// Where a block writes its results.
template <class Out>
struct MmaResult {
  Out* first;                     // results of row 0, column 0 of the tile
  int64_t rows, columns, stride;  // valid rows and columns of the tile
  const float* bias;              // bias of the tile's columns, optional
  bool accumulate;
};

template <class Out>
__device__ void store_eight(const float* from, const MmaResult<Out>& to, int row, int column) {
  if (row >= to.rows) return;
  Out* target = to.first + row * to.stride + column;
  const int64_t real = to.columns - column;
  for (int k = 0; k < 8; ++k) {
    if (k >= real) return;
    float value = from[k];
    if (to.bias != nullptr) value += to.bias[column + k];
    if (to.accumulate) value += lamina::cuda::to_float(target[k]);
    target[k] = lamina::cuda::from_float<Out>(value);
  }
}

/// Computes the block's 128 × 128 results over `depth`. kKLastA: A is [m, k] in memory, else [k, m]. kKLastB: B is [n,
/// k] in memory, else [k, n]. `m` and `n` are the first row and column of the tile.
template <bool kKLastA, bool kKLastB, class T, class Out>
__device__ void mma_block(const MmaOperand<T>& a, const MmaOperand<T>& b, int64_t m, int64_t n, int64_t depth,
                          unsigned char* memory, const MmaResult<Out>& result) {
  namespace wmma = nvcuda::wmma;
  using LayoutA = std::conditional_t<kKLastA, wmma::row_major, wmma::col_major>;
  using LayoutB = std::conditional_t<kKLastB, wmma::col_major, wmma::row_major>;
  constexpr int kLdA = (kKLastA ? kMmaDepth : kMmaTile) + kMmaPad;
  constexpr int kLdB = (kKLastB ? kMmaDepth : kMmaTile) + kMmaPad;
  T* tiles_a = reinterpret_cast<T*>(memory);
  T* tiles_b = tiles_a + kMmaStages * kMmaElements;
  const auto load = [&](int64_t step) {
    const int64_t k = step * kMmaDepth;
    if (k < depth) {
      T* to_a = tiles_a + step % kMmaStages * kMmaElements;
      T* to_b = tiles_b + step % kMmaStages * kMmaElements;
      if constexpr (kKLastA) {
        load_tile<kMmaTile, kMmaDepth>(a, m, k, to_a);
      } else {
        load_tile<kMmaDepth, kMmaTile>(a, k, m, to_a);
      }
      if constexpr (kKLastB) {
        load_tile<kMmaTile, kMmaDepth>(b, n, k, to_b);
      } else {
        load_tile<kMmaDepth, kMmaTile>(b, k, n, to_b);
      }
    }
    asm volatile("cp.async.commit_group;\n");
  };
  const int warp = static_cast<int>(threadIdx.x) / lamina::cuda::kWarp;
  const int lane = static_cast<int>(threadIdx.x) % lamina::cuda::kWarp;
  const int row0 = warp / 4 * 64;
  const int column0 = warp % 4 * 32;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sums[4][2];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int j = 0; j < 2; ++j) wmma::fill_fragment(sums[i][j], 0.0F);
  }
  const int64_t steps = (depth + kMmaDepth - 1) / kMmaDepth;
#pragma unroll
  for (int step = 0; step < kMmaStages - 1; ++step) load(step);
  for (int64_t step = 0; step < steps; ++step) {
    asm volatile("cp.async.wait_group %0;\n" ::"n"(kMmaStages - 2));
    __syncthreads();  // the tile has arrived, and no thread reads the stage that is overwritten next
    load(step + kMmaStages - 1);
    const T* tile_a = tiles_a + step % kMmaStages * kMmaElements;
    const T* tile_b = tiles_b + step % kMmaStages * kMmaElements;
#pragma unroll
    for (int k = 0; k < kMmaDepth; k += 16) {
      wmma::fragment<wmma::matrix_b, 16, 16, 16, T, LayoutB> right[2];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int column = column0 + j * 16;
        wmma::load_matrix_sync(right[j], tile_b + (kKLastB ? column * kLdB + k : k * kLdB + column), kLdB);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        wmma::fragment<wmma::matrix_a, 16, 16, 16, T, LayoutA> left;
        const int row = row0 + i * 16;
        wmma::load_matrix_sync(left, tile_a + (kKLastA ? row * kLdA + k : k * kLdA + row), kLdA);
#pragma unroll
        for (int j = 0; j < 2; ++j) wmma::mma_sync(sums[i][j], left, right[j], sums[i][j]);
      }
    }
  }
  asm volatile("cp.async.wait_group 0;\n");
  __syncthreads();
  // Each warp writes its 16 × 16 accumulators, one after the other, through its own part of shared memory.
  constexpr int kLd = 24;
  float* stage = reinterpret_cast<float*>(memory) + warp * 16 * kLd;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      wmma::store_matrix_sync(stage, sums[i][j], kLd, wmma::mem_row_major);
      __syncwarp();
      store_eight(stage + lane / 2 * kLd + lane % 2 * 8, result, row0 + i * 16 + lane / 2,
                  column0 + j * 16 + lane % 2 * 8);
      __syncwarp();
    }
  }
}

}  // namespace lamina::ops::cuda
