#pragma once

// wgmma products for attention (sm_90a only): 64 rows per warpgroup, 32, 64 or 128 columns, 16 along k. Warp w of a
// warpgroup has rows 16·w to 16·w + 15; its lanes hold them as AccumulatorTile<1, columns / 8> of mma.cuh. So the
// accumulators of one product, rounded, can be the left operand of the next. Operands in shared memory are tiles with
// rows of 128 bytes (Tile<T, 64>, or written by TMA with its 128-byte swizzle), which smem_descriptor() describes. An
// operand is K-major if its rows run along k; if k indexes the rows, it is MN-major.
//
// All functions are inline, so builds for other GPUs have no unused functions.

#include "lamina/ops/attention/cuda/mma/mma.cuh"
#include "lamina/tensor/cuda/tensor_map.h"
#include "lamina/tensor/cuda/wgmma.cuh"

namespace lamina::ops::cuda {

using lamina::cuda::fence_async_proxy;
using lamina::cuda::smem_descriptor;
using lamina::cuda::wgmma_commit;
using lamina::cuda::wgmma_fence;
using lamina::cuda::wgmma_wait;

inline constexpr int kGroupThreads = 128;
// Distance of consecutive groups of 16 along k, in the unit of smem_descriptor() (16 bytes).
inline constexpr int kStepKMajor = 32 >> 4;
inline constexpr int kStepMnMajor = 16 * 128 >> 4;

inline constexpr bool kKMajor = true;
inline constexpr bool kMnMajor = false;

inline constexpr int kBoxWidth = 64;

/// Creates a TMA descriptor with boxes of `rows` positions; returns false if TMA does not support the layout.
template <class T>
bool make_tma_descriptor(CUtensorMap& map, const AttentionParams& p, const void* data, int width, int heads, int seq,
                         int rows, const HeadStrides& at) {
  // If a dimension has size 1, its stride is irrelevant. Other strides must be positive (no broadcasting).
  const auto stride = [](int64_t extent, int64_t given) { return extent == 1 ? 8 : given; };
  if (stride(heads, at.head) <= 0 || stride(seq, at.seq) <= 0 || stride(p.batch, at.batch) <= 0) return false;
  return lamina::cuda::encode_tensor_map<4>(
      map, {data,
            {width, heads, seq, p.batch},
            {kBoxWidth, 1, rows, 1},
            std::is_same_v<T, __nv_bfloat16>,
            {1, stride(heads, at.head), stride(seq, at.seq), stride(p.batch, at.batch)}});
}

#define LAMINA_BLOCK(n) "+f"(sums[0][n][0]), "+f"(sums[0][n][1]), "+f"(sums[0][n][2]), "+f"(sums[0][n][3])
#define LAMINA_BLOCKS(n) LAMINA_BLOCK(n), LAMINA_BLOCK(n + 1), LAMINA_BLOCK(n + 2), LAMINA_BLOCK(n + 3)
#define LAMINA_16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define LAMINA_32 LAMINA_16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define LAMINA_64                                                                                               \
  LAMINA_32                                                                                                     \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, " \
  "%53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define LAMINA_PRODUCT(type, width, add) \
  "{\n.reg .pred add;\nsetp.ne.b32 add, " add ", 0;\nwgmma.mma_async.sync.aligned.m64n" width "k16.f32." type "." type
#define LAMINA_SHARED(type, width, list, a, b, add, turn_a, turn_b, ...)                                             \
  asm volatile(LAMINA_PRODUCT(type, width, add) " {" list "}, " a ", " b ", add, 1, 1, " turn_a ", " turn_b ";\n}\n" \
               : __VA_ARGS__                                                                                         \
               : "l"(left), "l"(right), "r"(static_cast<int>(add_to)), "n"(kLeftKMajor ? 0 : 1),                     \
                 "n"(kRightKMajor ? 0 : 1))
#define LAMINA_HELD(type, width, list, a, b, add, turn_b, ...)                                                      \
  asm volatile(LAMINA_PRODUCT(type, width, add) " {" list "}, {" a "}, " b ", add, 1, 1, " turn_b ";\n}\n"          \
               : __VA_ARGS__                                                                                        \
               : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right), "r"(static_cast<int>(add_to)), \
                 "n"(kRightKMajor ? 0 : 1))
#define LAMINA_SHARED_OF(type)                                                                                   \
  if constexpr (kBlocks == 4) {                                                                                  \
    LAMINA_SHARED(type, "32", LAMINA_16, "%16", "%17", "%18", "%19", "%20", LAMINA_BLOCKS(0));                   \
  } else if constexpr (kBlocks == 8) {                                                                           \
    LAMINA_SHARED(type, "64", LAMINA_32, "%32", "%33", "%34", "%35", "%36", LAMINA_BLOCKS(0), LAMINA_BLOCKS(4)); \
  } else {                                                                                                       \
    LAMINA_SHARED(type, "128", LAMINA_64, "%64", "%65", "%66", "%67", "%68", LAMINA_BLOCKS(0), LAMINA_BLOCKS(4), \
                  LAMINA_BLOCKS(8), LAMINA_BLOCKS(12));                                                          \
  }
#define LAMINA_HELD_OF(type)                                                                                           \
  if constexpr (kBlocks == 4) {                                                                                        \
    LAMINA_HELD(type, "32", LAMINA_16, "%16, %17, %18, %19", "%20", "%21", "%22", LAMINA_BLOCKS(0));                   \
  } else if constexpr (kBlocks == 8) {                                                                                 \
    LAMINA_HELD(type, "64", LAMINA_32, "%32, %33, %34, %35", "%36", "%37", "%38", LAMINA_BLOCKS(0), LAMINA_BLOCKS(4)); \
  } else {                                                                                                             \
    LAMINA_HELD(type, "128", LAMINA_64, "%64, %65, %66, %67", "%68", "%69", "%70", LAMINA_BLOCKS(0), LAMINA_BLOCKS(4), \
                LAMINA_BLOCKS(8), LAMINA_BLOCKS(12));                                                                  \
  }

/// sums [64, 8·kBlocks] = left [64, 16] · right [16, 8·kBlocks], or += if add_to. The sums may be read only after
/// wgmma_wait() and fence_registers().
template <class T, bool kLeftKMajor, bool kRightKMajor, int kBlocks>
__device__ inline void multiply_shared(AccumulatorTile<1, kBlocks>& sums, uint64_t left, uint64_t right,
                                       bool add_to = true) {
  static_assert(kBlocks == 4 || kBlocks == 8 || kBlocks == 16);
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    LAMINA_SHARED_OF("bf16")
  } else {
    LAMINA_SHARED_OF("f16")
  }
}
/// multiply_shared() with the left operand in registers, which must not change before the product has completed.
template <class T, bool kRightKMajor, int kBlocks>
__device__ inline void multiply_held(AccumulatorTile<1, kBlocks>& sums, const uint32_t (&left)[4], uint64_t right,
                                     bool add_to = true) {
  static_assert(kBlocks == 4 || kBlocks == 8 || kBlocks == 16);
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    LAMINA_HELD_OF("bf16")
  } else {
    LAMINA_HELD_OF("f16")
  }
}

#undef LAMINA_HELD_OF
#undef LAMINA_SHARED_OF
#undef LAMINA_HELD
#undef LAMINA_SHARED
#undef LAMINA_PRODUCT
#undef LAMINA_64
#undef LAMINA_32
#undef LAMINA_16
#undef LAMINA_BLOCKS
#undef LAMINA_BLOCK

__device__ inline void finish_products() {
  wgmma_commit();
  wgmma_wait();
}

/// Compiler fence for accumulators, to be called after wgmma_wait(). The compiler assumes that they are complete as
/// soon as a product is issued; the fence keeps it from moving accesses across this point.
template <int kBlocks>
__device__ inline void fence_registers(AccumulatorTile<1, kBlocks>& sums) {
#pragma unroll
  for (int n = 0; n < kBlocks; ++n) {
    asm volatile("" : "+f"(sums[0][n][0]), "+f"(sums[0][n][1]), "+f"(sums[0][n][2]), "+f"(sums[0][n][3])::"memory");
  }
}
/// Keeps the registers of a left operand unchanged until here.
__device__ inline void fence_registers(uint32_t (&left)[4]) {
  asm volatile("" : "+r"(left[0]), "+r"(left[1]), "+r"(left[2]), "+r"(left[3])::"memory");
}

/// Makes a left operand from the rounded accumulators of a previous product: their columns 16·step to 16·step + 15.
template <class T, int kBlocks>
__device__ inline void pack_left(uint32_t (&left)[4], const AccumulatorTile<1, kBlocks>& x, int step) {
  left[0] = pack_pair<T>(x[0][2 * step][0], x[0][2 * step][1]);
  left[1] = pack_pair<T>(x[0][2 * step][2], x[0][2 * step][3]);
  left[2] = pack_pair<T>(x[0][2 * step + 1][0], x[0][2 * step + 1][1]);
  left[3] = pack_pair<T>(x[0][2 * step + 1][2], x[0][2 * step + 1][3]);
}

/// Stores the four 8 × 8 matrices of a 16 × 16 left operand to 16 rows of a shared-memory tile, from `row` on, in
/// columns 8·chunk to 8·chunk + 15.
template <class T, int kD>
__device__ inline void stmatrix_x4(const uint32_t (&left)[4], const Tile<T, kD>& tile, int row, int chunk) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};\n" ::"r"(
                   tile.at(row + lane % 16, chunk + lane / 16)),
               "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3])
               : "memory");
}

/// Writes a warp's 16 rows to global memory, with row stride `stride`, in 16-byte chunks. They are staged in the
/// shared-memory rows from `row` on of one tile per 64 columns; these tiles are `apart` bytes apart. All lanes must
/// call it.
template <class T, int kBlocks>
__device__ inline void store_rows(const AccumulatorTile<1, kBlocks>& sums, const Tile<T, 64>& tile, int apart, int row,
                                  T* to, int64_t stride, int count, int width) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  __syncwarp();
#pragma unroll
  for (int n = 0; n < kBlocks / 2; ++n) {
    uint32_t left[4];
    pack_left<T, kBlocks>(left, sums, n);
    stmatrix_x4(left, Tile<T, 64>{tile.base + n / 4 * apart}, row, n % 4 * 2);
  }
  __syncwarp();
  constexpr int kChunks = kBlocks;
  constexpr int kStep = 32 / kChunks;  // rows that the warp writes at once
  const int chunk = lane % kChunks;
  const Tile<T, 64> from{tile.base + chunk / 8 * apart};
  T* out = to + lane / kChunks * stride + chunk * 8;
#pragma unroll
  for (int line = lane / kChunks, n = 0; n < 16 / kStep; ++n, line += kStep) {
    uint4 words;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
                 : "r"(from.at(row + line, chunk % 8))
                 : "memory");
    if (line < count && chunk * 8 < width) *reinterpret_cast<uint4*>(out) = words;
    out += kStep * stride;
  }
}

}  // namespace lamina::ops::cuda
