#pragma once

// Grouped GEMM with wgmma (compute capability 9.0). The kernel is persistent: each block processes tiles of 128 × 256
// results one after the other and finds them from the offsets on the device. A producer thread loads operands with TMA,
// 64 elements along k at a time, in a ring of four stages that continues across tiles. Two consumer warpgroups multiply
// 64 rows each. The next tile is loaded while they write results.
//
// Loads may extend past the rows of an expert. If these rows are rows of the result, they are not written. If they lie
// along k (weight gradients), they are zeroed in shared memory before the multiplication.
//
// Shared memory holds boxes of rows of 64 elements (128 bytes) in TMA's 128-byte swizzle. A K-major operand is one box
// of 128 or 256 rows. An MN-major operand is several boxes, each with 64 rows along k and 64 columns of results. 16-bit
// results are staged in a per-warp part of shared memory, so that whole cache lines are written.

#include "lamina/ops/moe/grouped_wgmma.h"
#include "lamina/ops/moe/row_tile.cuh"
#include "lamina/tensor/cuda/async_copy.cuh"
#include "lamina/tensor/cuda/tma.cuh"
#include "lamina/tensor/cuda/wgmma.cuh"

namespace lamina::ops::cuda::wgmma {

using namespace lamina::cuda;  // NOLINT: kernel helpers

constexpr int kHeight = 128;
constexpr int kWidth = 256;
constexpr int kDepth = 64;
constexpr int kStageCount = 4;
constexpr int kGroupThreads = 128;
constexpr int kBlockSize = 3 * kGroupThreads;
constexpr int kBoxBytes = 64 * 128;  // 64 rows of 64 elements
constexpr int kLeftBytes = kHeight * kDepth * 2;
constexpr int kStageBytes = kLeftBytes + kWidth * kDepth * 2;
// Row pitch in bytes of the staging area: 64 results of 16 bits, padded against bank conflicts.
constexpr int kStagingPitch = 144;
constexpr int kStagingBytes = 16 * kStagingPitch;
constexpr int kSharedBytes = 1024 + kStageCount * kStageBytes + 8 * kStagingBytes;

struct Tile {
  int expert;
  int64_t row;    ///< first row of the left operand; for weights, first row along k
  int64_t count;  ///< number of rows to write; for weights, number of rows along k
  int64_t top;    ///< first result row, within the expert's rows or, for weights, within its matrix
  int64_t column;
  int steps;
};

/// Finds tiles by their index. The indices passed to find() must ascend.
template <Form kForm>
struct TileIterator {
  const Product& product;
  int64_t columns;
  int64_t passed = 0;  ///< number of tiles of the previous experts
  int64_t tiles = 0;   ///< number of tiles of this expert
  RowTile rows{-1, 0, 0};

  __device__ explicit TileIterator(const Product& p) : product(p), columns((p.width + kWidth - 1) / kWidth) {}

  /// Sets `tile` to the tile with this index; returns false after the last one.
  __device__ bool find(int64_t index, Tile& tile) {
    const Product& p = product;
    while (index >= passed + tiles) {
      if (rows.expert + 1 >= p.experts) return false;
      passed += tiles;
      rows = expert_rows(p.offsets, p.experts, p.slots, rows.expert + 1);
      const int64_t height = kForm == Form::weights ? p.height : rows.end - rows.begin;
      tiles = (height + kHeight - 1) / kHeight * columns;
    }
    const int64_t within = index - passed;
    const int64_t down = within / columns;
    tile.expert = static_cast<int>(rows.expert);
    tile.column = (within - down * columns) * kWidth;
    tile.top = down * kHeight;
    if constexpr (kForm == Form::weights) {
      tile.row = rows.begin;
      tile.count = rows.end - rows.begin;
      tile.steps = static_cast<int>((tile.count + kDepth - 1) / kDepth);
    } else {
      tile.row = rows.begin + tile.top;
      tile.count = min(rows.end - tile.row, int64_t{kHeight});
      tile.steps = static_cast<int>((p.depth + kDepth - 1) / kDepth);
    }
    return true;
  }
};

/// A stage of the ring, and the phase parity of its mbarrier.
struct Stage {
  int index = 0;
  uint32_t parity = 0;
  __device__ void next() {
    if (++index == kStageCount) index = 0, parity ^= 1;
  }
};

/// Issues all TMA loads of one k step of a tile.
template <Form kForm>
__device__ inline void copy_step(const CUtensorMap& left, const CUtensorMap& right, const Tile& tile, int step,
                                 uint32_t to, uint32_t barrier) {
  const int64_t k = int64_t{step} * kDepth;
  const uint32_t to_right = to + kLeftBytes;
  if constexpr (kForm == Form::weights) {
#pragma unroll
    for (int box = 0; box < kHeight / 64; ++box) {
      tma_load(to + box * kBoxBytes, left, barrier, tile.top + box * 64, tile.row + k);
    }
#pragma unroll
    for (int box = 0; box < kWidth / 64; ++box) {
      tma_load(to_right + box * kBoxBytes, right, barrier, tile.column + box * 64, tile.row + k);
    }
  } else {
    tma_load(to, left, barrier, k, tile.row);
    if constexpr (kForm == Form::rows) {
      tma_load(to_right, right, barrier, k, tile.column, tile.expert);
    } else {
#pragma unroll
      for (int box = 0; box < kWidth / 64; ++box) {
        tma_load(to_right + box * kBoxBytes, right, barrier, tile.column + box * 64, k, tile.expert);
      }
    }
  }
}

/// Starts sums [64, 256] = left [64, 16] · right [16, 256], added to sums if `add`, for a warpgroup. Warp w holds rows
/// 16·w to 16·w + 15. Lane 4·g + p of it holds, at columns 8·j + 2·p and 8·j + 2·p + 1, row g in sums[4·j], sums[4·j +
/// 1] and row g + 8 in the next two.
template <class T, bool kAlongLeft, bool kAlongRight>
__device__ inline void multiply_async(float (&sums)[128], uint64_t left, uint64_t right, int add) {
#define LAMINA_FOUR(i) "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3])
#define LAMINA_SIXTEEN(i) LAMINA_FOUR(i), LAMINA_FOUR(i + 4), LAMINA_FOUR(i + 8), LAMINA_FOUR(i + 12)
#define LAMINA_MULTIPLY(type)                                                                              \
  asm volatile(                                                                                            \
      "{\n.reg .pred add;\nsetp.ne.b32 add, %130, 0;\n"                                                    \
      "wgmma.mma_async.sync.aligned.m64n256k16.f32." type "." type                                         \
      " {"                                                                                                 \
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                             \
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "                   \
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "                   \
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "                   \
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "                   \
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "                   \
      "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "       \
      "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"     \
      "}, %128, %129, add, 1, 1, %131, %132;\n}\n"                                                         \
      : LAMINA_SIXTEEN(0), LAMINA_SIXTEEN(16), LAMINA_SIXTEEN(32), LAMINA_SIXTEEN(48), LAMINA_SIXTEEN(64), \
        LAMINA_SIXTEEN(80), LAMINA_SIXTEEN(96), LAMINA_SIXTEEN(112)                                        \
      : "l"(left), "l"(right), "r"(add), "n"(kAlongLeft ? 0 : 1), "n"(kAlongRight ? 0 : 1))
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    LAMINA_MULTIPLY("bf16");
  } else {
    LAMINA_MULTIPLY("f16");
  }
#undef LAMINA_MULTIPLY
#undef LAMINA_SIXTEEN
#undef LAMINA_FOUR
}

/// Zeroes the rows from `first` on in this warpgroup's share of a stage. Both warpgroups must call it.
__device__ inline void clear_rows_from(unsigned char* stage, int group, int first) {
  constexpr int kShare = kWidth / 64 / 2;  // boxes of the right operand per warpgroup
  const int packs = (64 - first) * 8;
  for (int i = threadIdx.x % kGroupThreads; i < packs * (1 + kShare); i += kGroupThreads) {
    const int box = i / packs;
    const int at = first * 128 + (i - box * packs) * 16;
    unsigned char* from =
        box == 0 ? stage + group * kBoxBytes : stage + kLeftBytes + (group * kShare + box - 1) * kBoxBytes;
    *reinterpret_cast<uint4*>(from + at) = make_uint4(0, 0, 0, 0);
  }
  fence_async_proxy();
  asm volatile("bar.sync 1, %0;" ::"n"(2 * kGroupThreads) : "memory");
}

/// Writes a warp's 16 result rows as T, 64 columns at a time, staged in the warp's part of shared memory.
template <class T>
__device__ inline void store_rows(const Product& p, const Tile& tile, const float (&sums)[128], int first_row,
                                  unsigned char* staging) {
  const int lane = threadIdx.x % kWarp;
  const int g = lane / 4;
  const int pair = lane % 4 * 2;
  const float* bias = p.bias != nullptr ? p.bias + tile.expert * p.width : nullptr;
  T* result = static_cast<T*>(p.result) + (tile.row + first_row) * p.width;
#pragma unroll
  for (int part = 0; part < kWidth / 64; ++part) {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float* from = sums + (part * 8 + j) * 4;
      const int64_t column = tile.column + part * 64 + j * 8 + pair;
      float2 added = {0.0F, 0.0F};
      if (bias != nullptr && column < p.width) added = *reinterpret_cast<const float2*>(bias + column);
      Vec<T, 2> two;
      two.values[0] = from_float<T>(from[0] + added.x);
      two.values[1] = from_float<T>(from[1] + added.y);
      *reinterpret_cast<Vec<T, 2>*>(staging + g * kStagingPitch + (j * 8 + pair) * 2) = two;
      two.values[0] = from_float<T>(from[2] + added.x);
      two.values[1] = from_float<T>(from[3] + added.y);
      *reinterpret_cast<Vec<T, 2>*>(staging + (g + 8) * kStagingPitch + (j * 8 + pair) * 2) = two;
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = i * 4 + lane / 8;
      const int64_t column = tile.column + part * 64 + lane % 8 * 8;
      const uint4 eight = *reinterpret_cast<const uint4*>(staging + row * kStagingPitch + lane % 8 * 16);
      if (first_row + row < tile.count && column < p.width) {
        *reinterpret_cast<uint4*>(result + row * p.width + column) = eight;
      }
    }
    __syncwarp();
  }
}

/// Writes a warp's 16 result rows as f32 directly from registers: four lanes fill a 32-byte sector.
__device__ inline void store_weights(const Product& p, const Tile& tile, const float (&sums)[128], int first_row) {
  const int lane = threadIdx.x % kWarp;
  const int64_t row = tile.top + first_row + lane / 4;
  float* result = static_cast<float*>(p.result) + (tile.expert * p.height + row) * p.width;
#pragma unroll
  for (int j = 0; j < kWidth / 8; ++j) {
    const int64_t column = tile.column + j * 8 + lane % 4 * 2;
    if (column >= p.width) continue;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (row + half * 8 >= p.height) continue;
      auto* to = reinterpret_cast<float2*>(result + half * 8 * p.width + column);
      float2 two = {sums[j * 4 + half * 2], sums[j * 4 + half * 2 + 1]};
      if (p.accumulate) {
        const float2 before = *to;
        two.x += before.x, two.y += before.y;
      }
      *to = two;
    }
  }
}

template <class T, Form kForm>
__global__ void __launch_bounds__(kBlockSize, 1)
    grouped_product(const __grid_constant__ CUtensorMap left, const __grid_constant__ CUtensorMap right,
                    const __grid_constant__ Product product) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ unsigned char memory[];
  __shared__ alignas(8) uint64_t barriers[2 * kStageCount];
  unsigned char* stages = memory + (1024 - shared_address(memory) % 1024) % 1024;
  const uint32_t ring = shared_address(stages);
  const uint32_t full = shared_address(barriers);
  const uint32_t empty = full + kStageCount * 8;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStageCount; ++i) {
      barrier_init(full + i * 8, 1);
      barrier_init(empty + i * 8, 2);
    }
    fence_barrier_init();
  }
  __syncthreads();
  TileIterator<kForm> tiles(product);
  Stage stage;
  Tile tile;
  if (threadIdx.x < kGroupThreads) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x != 0) return;
    for (int64_t index = blockIdx.x; tiles.find(index, tile); index += gridDim.x) {
      for (int step = 0; step < tile.steps; ++step) {
        barrier_wait(empty + stage.index * 8, stage.parity ^ 1);
        barrier_expect(full + stage.index * 8, kStageBytes);
        copy_step<kForm>(left, right, tile, step, ring + stage.index * kStageBytes, full + stage.index * 8);
        stage.next();
      }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    constexpr bool kAlongLeft = kForm != Form::weights;
    constexpr bool kAlongRight = kForm == Form::rows;
    constexpr int kStepLeft = kAlongLeft ? 32 : 16 * 128;  // bytes of 16 elements along k
    constexpr int kStepRight = kAlongRight ? 32 : 16 * 128;
    const int group = threadIdx.x / kGroupThreads - 1;
    const int warp = threadIdx.x / kWarp - 4;
    const int first_row = warp * 16;
    const bool is_elected = threadIdx.x % kGroupThreads == 0;
    unsigned char* staging = stages + kStageCount * kStageBytes + warp * kStagingBytes;
    float sums[128];
    for (int64_t index = blockIdx.x; tiles.find(index, tile); index += gridDim.x) {
      if (kForm == Form::weights && tile.steps == 0) {
#pragma unroll
        for (int i = 0; i < 128; ++i) sums[i] = 0.0F;
      }
      uint32_t before = 0;  // the `empty` barrier of the stage that the running product reads
      for (int step = 0; step < tile.steps; ++step) {
        barrier_wait(full + stage.index * 8, stage.parity);
        const int valid_rows = kForm == Form::weights ? static_cast<int>(tile.count) - step * kDepth : kDepth;
        if (valid_rows < kDepth) clear_rows_from(stages + stage.index * kStageBytes, group, valid_rows);
        const uint32_t from = ring + stage.index * kStageBytes;
        // Boxes have 64 rows of results in both layouts, so the second warpgroup's left operand starts one box later.
        const uint64_t a = smem_descriptor(from + group * kBoxBytes, 16);
        const uint64_t b = smem_descriptor(from + kLeftBytes, kAlongRight ? 16 : kBoxBytes);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < kDepth / 16; ++k) {
          multiply_async<T, kAlongLeft, kAlongRight>(sums, a + (k * kStepLeft >> 4), b + (k * kStepRight >> 4),
                                                     step > 0 || k > 0);
        }
        wgmma_commit();
        wgmma_wait<1>();
        if (is_elected && step > 0) barrier_arrive(before);
        before = empty + stage.index * 8;
        stage.next();
      }
      wgmma_wait();
      if (is_elected && tile.steps > 0) barrier_arrive(before);
      if constexpr (kForm == Form::weights) {
        store_weights(product, tile, sums, first_row);
      } else {
        store_rows<T>(product, tile, sums, first_row, staging);
      }
    }
  }
#endif
}

}  // namespace lamina::ops::cuda::wgmma
