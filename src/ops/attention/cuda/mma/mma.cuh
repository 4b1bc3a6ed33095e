#pragma once

// mma.sync primitives for attention: 16×8×16 products of bf16 or f16 with f32 accumulators, and tiles in shared memory
// that are filled with cp.async.
//
// A tile has rows of kD elements (64 or 128) with XOR-swizzled 16-byte chunks: chunk c of row r is stored at c ^ (r %
// 8), so that the eight rows of an 8×8 matrix have no bank conflicts. In each 16×8 block of an accumulator, lane l
// holds columns 2·(l % 4) and 2·(l % 4) + 1 of rows l / 4 and l / 4 + 8, as {row, row, row + 8, row + 8}. Two adjacent
// blocks, rounded, form the left operand of the next product directly, without shared memory.

#include "lamina/ops/attention/cuda/device.cuh"
#include "lamina/tensor/cuda/matrix_loads.cuh"
#include "lamina/tensor/cuda/mma.cuh"

namespace lamina::ops::cuda {

using lamina::cuda::cp_async_16;
using lamina::cuda::cp_async_commit;
using lamina::cuda::cp_async_wait;
using lamina::cuda::fast_exp2;
using lamina::cuda::kLn2;
using lamina::cuda::kLog2E;
using lamina::cuda::ldmatrix_x4;
using lamina::cuda::ldmatrix_x4_trans;
using lamina::cuda::reciprocal;
using lamina::cuda::shared_address;

using lamina::cuda::mma_m16n8k16;

/// Index of a row among the lane's own rows, of which there are two per 16. `row` counts from the lane's first row.
__device__ constexpr int half_of(int row) { return row / 16 * 2 + row / 8 % 2; }

/// Rounds two numbers and packs them, the first in the lower half.
template <class T>
__device__ inline uint32_t pack_pair(float low, float high);
template <>
__device__ inline uint32_t pack_pair<__nv_bfloat16>(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}
template <>
__device__ inline uint32_t pack_pair<__half>(float low, float high) {
  const __half2 pair = __floats2half2_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

/// tanh with an absolute error of about 1e-7, enough for the soft cap of 16-bit types.
__device__ inline float quick_tanh(float x) {
  return fmaf(-2.0F, reciprocal(1.0F + fast_exp2(2.0F * kLog2E * x)), 1.0F);
}

/// Copies up to eight elements one by one to shared memory, and pads with zeros.
template <class T>
__device__ __noinline__ void copy_singly(uint32_t to, const T* from, int count) {
  uint32_t words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const auto* parts = reinterpret_cast<const unsigned short*>(from) + 2 * i;
    const uint32_t low = 2 * i < count ? parts[0] : 0U;
    const uint32_t high = 2 * i + 1 < count ? parts[1] : 0U;
    words[i] = low | high << 16;
  }
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};\n" ::"r"(to), "r"(words[0]), "r"(words[1]), "r"(words[2]),
               "r"(words[3])
               : "memory");
}

/// A tile in shared memory.
template <class T, int kD>
struct Tile {
  uint32_t base;

  /// Address of the chunk of 8 elements that begins at column 8·chunk.
  __device__ uint32_t at(int row, int chunk) const {
    return base + static_cast<uint32_t>((row * kD + ((chunk ^ (row & 7)) * 8)) * 2);
  }

  /// Starts filling kRows rows from global memory with kThreads threads. Rows from `count` on and columns from `width`
  /// on become zero. The tile may be read after cp_async_wait() and a barrier.
  template <int kRows, int kThreads>
  __device__ void fill(const T* from, int64_t stride, int count, int width, bool vectorized) const {
    constexpr int kChunks = kD / 8;
    constexpr int kStep = kThreads / kChunks;  // rows that all threads fill at once
    static_assert(kStep % 8 == 0 && kRows % kStep == 0);
    const int chunk = static_cast<int>(threadIdx.x) % kChunks;
    const int first = static_cast<int>(threadIdx.x) / kChunks;
    const int rows = chunk * 8 < width ? count - first : 0;
    const uint32_t to = at(first, chunk);
    const T* source = from + first * stride + chunk * 8;
#pragma unroll
    for (int row = 0; row < kRows; row += kStep) {
      const bool inside = row < rows;
      if (vectorized) {
        cp_async_16(to + row * kD * 2, inside ? source : from, inside);
      } else {
        copy_singly(to + row * kD * 2, source, inside ? min(width - chunk * 8, 8) : 0);
      }
      source += kStep * stride;
    }
  }

  /// Loads a left operand: 16 rows from `row` on, columns 16·step to 16·step + 15.
  __device__ void left(uint32_t (&to)[4], int row, int step) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    ldmatrix_x4(to, at(row + lane % 16, step * 2 + lane / 16));
  }
  /// Loads a right operand whose columns are 16 rows of the tile: {b0, b1} of the first eight rows, then of the others.
  __device__ void right_rows(uint32_t (&to)[4], int row, int step) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    ldmatrix_x4(to, at(row + lane / 16 * 8 + lane % 8, step * 2 + lane / 8 % 2));
  }
  /// Loads a right operand whose rows are 16 rows of the tile, and whose columns are columns 16·block to 16·block + 15.
  __device__ void right_columns(uint32_t (&to)[4], int row, int block) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    ldmatrix_x4_trans(to, at(row + lane % 16, block * 2 + lane / 16));
  }
};

/// Accumulators of a warp: kRowTiles tiles of 16 rows, kBlocks blocks of 8 columns.
template <int kRowTiles, int kBlocks>
using AccumulatorTile = float[kRowTiles][kBlocks][4];

template <int kRowTiles, int kBlocks>
__device__ inline void clear(AccumulatorTile<kRowTiles, kBlocks>& sums) {
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int n = 0; n < kBlocks; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[m][n][i] = 0;
    }
  }
}

/// sums += a bᵀ, for the rows from `a_row` on of tile a and the rows from `b_row` on of tile b.
template <class T, int kD, int kRowTiles, int kBlocks>
__device__ inline void multiply_tiles(AccumulatorTile<kRowTiles, kBlocks>& sums, const Tile<T, kD>& a, int a_row,
                                      const Tile<T, kD>& b, int b_row) {
#pragma unroll
  for (int step = 0; step < kD / 16; ++step) {
    uint32_t left[kRowTiles][4];
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) a.left(left[m], a_row + m * 16, step);
#pragma unroll
    for (int n = 0; n < kBlocks / 2; ++n) {
      uint32_t right[4];
      b.right_rows(right, b_row + n * 16, step);
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
        mma_m16n8k16<T>(sums[m][2 * n], left[m], right[0], right[1]);
        mma_m16n8k16<T>(sums[m][2 * n + 1], left[m], right[2], right[3]);
      }
    }
  }
}

/// The left operand of a warp's rows, kept in registers.
template <class T, int kD, int kRowTiles>
struct LeftOperand {
  uint32_t parts[kD / 16][kRowTiles][4];

  __device__ void load(const Tile<T, kD>& tile, int row) {
#pragma unroll
    for (int step = 0; step < kD / 16; ++step) {
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) tile.left(parts[step][m], row + m * 16, step);
    }
  }
};

/// multiply_tiles() with the left operand in registers.
template <class T, int kD, int kRowTiles, int kBlocks>
__device__ inline void multiply_loaded(AccumulatorTile<kRowTiles, kBlocks>& sums,
                                       const LeftOperand<T, kD, kRowTiles>& left, const Tile<T, kD>& b, int b_row) {
#pragma unroll
  for (int step = 0; step < kD / 16; ++step) {
#pragma unroll
    for (int n = 0; n < kBlocks / 2; ++n) {
      uint32_t right[4];
      b.right_rows(right, b_row + n * 16, step);
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
        mma_m16n8k16<T>(sums[m][2 * n], left.parts[step][m], right[0], right[1]);
        mma_m16n8k16<T>(sums[m][2 * n + 1], left.parts[step][m], right[2], right[3]);
      }
    }
  }
}

/// Calls fn(m, n, i) for each element of a warp's accumulators.
template <int kRowTiles, int kBlocks, class F>
__device__ inline void for_places(const F& fn) {
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int n = 0; n < kBlocks; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) fn(m, n, i);
    }
  }
}

/// Calls fn(sum, row, column) for each accumulator element, with `sum` by reference; row and column count from the
/// lane's first. Test conditions that are the same for all elements outside: a branch per element costs more than the
/// work.
template <int kRowTiles, int kBlocks, class F>
__device__ inline void for_sums(AccumulatorTile<kRowTiles, kBlocks>& sums, const F& fn) {
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int n = 0; n < kBlocks; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) fn(sums[m][n][i], m * 16 + i / 2 * 8, n * 8 + i % 2);
    }
  }
}

/// sums += x · b, where x is the accumulators of a previous product, which are rounded. The columns of x match the rows
/// of tile b from `b_row` on.
template <class T, int kD, int kRowTiles, int kBlocks>
__device__ inline void add_product_of(AccumulatorTile<kRowTiles, kD / 8>& sums,
                                      const AccumulatorTile<kRowTiles, kBlocks>& x, const Tile<T, kD>& b, int b_row) {
#pragma unroll
  for (int step = 0; step < kBlocks / 2; ++step) {
    uint32_t left[kRowTiles][4];
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
      left[m][0] = pack_pair<T>(x[m][2 * step][0], x[m][2 * step][1]);
      left[m][1] = pack_pair<T>(x[m][2 * step][2], x[m][2 * step][3]);
      left[m][2] = pack_pair<T>(x[m][2 * step + 1][0], x[m][2 * step + 1][1]);
      left[m][3] = pack_pair<T>(x[m][2 * step + 1][2], x[m][2 * step + 1][3]);
    }
#pragma unroll
    for (int n = 0; n < kD / 16; ++n) {
      uint32_t right[4];
      b.right_columns(right, b_row + step * 16, n);
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
        mma_m16n8k16<T>(sums[m][2 * n], left[m], right[0], right[1]);
        mma_m16n8k16<T>(sums[m][2 * n + 1], left[m], right[2], right[3]);
      }
    }
  }
}

/// Writes a warp's accumulators to global memory, with row stride `stride`. They are staged in the warp's own rows of a
/// shared-memory tile, so that global stores are 16 bytes wide. All lanes must call it.
template <class T, int kD, int kRowTiles>
__device__ inline void store_sums(const AccumulatorTile<kRowTiles, kD / 8>& sums, const Tile<T, kD>& tile, int tile_row,
                                  T* to, int64_t stride, int count, int width, bool vectorized) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  __syncwarp();
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int n = 0; n < kD / 8; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint32_t pair = pack_pair<T>(sums[m][n][2 * half], sums[m][n][2 * half + 1]);
        const int row = tile_row + m * 16 + half * 8 + lane / 4;
        asm volatile("st.shared.b32 [%0], %1;\n" ::"r"(tile.at(row, n) + lane % 4 * 4), "r"(pair) : "memory");
      }
    }
  }
  __syncwarp();
  constexpr int kChunks = kD / 8;
  for (int n = lane; n < kRowTiles * 16 * kChunks; n += 32) {
    const int row = n / kChunks;
    const int chunk = n % kChunks;
    if (row >= count || chunk * 8 >= width) continue;
    uint4 words;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
                 : "r"(tile.at(tile_row + row, chunk))
                 : "memory");
    T* out = to + row * stride + chunk * 8;
    if (vectorized) {
      *reinterpret_cast<uint4*>(out) = words;
    } else {
      const auto* parts = reinterpret_cast<const T*>(&words);
#pragma unroll
      for (int c = 0; c < 8; ++c) {
        if (chunk * 8 + c < width) out[c] = parts[c];
      }
    }
  }
}

}  // namespace lamina::ops::cuda
