// Products of 8-bit tiles with exact integer sums (Intel AMX: tdpbssd), scaled block by block. A block is 32 numbers
// along k, half the depth of a tile, because each block has its own scales. Computing one block of 16 × 16 sums takes
// 16 cycles of the tile unit; converting and scaling it takes 48 vector instructions, 24 cycles. The two units overlap:
// the tiles run one block ahead of the vectors and pass their sums through the L1 cache. The 16 rows of totals stay in
// registers.
#include "lamina/ops/linear/gemm/int8_tile.h"

#include <hwy/highway.h>

#include <cstring>

#if HWY_ARCH_X86_64 && defined(__linux__) && HWY_COMPILER_CLANG + HWY_COMPILER_GCC_ACTUAL > 0
#include <immintrin.h>
#define LAMINA_AMX_INT8 1
#endif

#ifdef LAMINA_AMX_INT8
HWY_PUSH_ATTRIBUTES("avx512f,avx512vl,avx512dq,avx512bw,amx-tile,amx-int8")
namespace lamina::ops {
namespace {

constexpr int64_t kNumbers = 32;                      // numbers of a block along k
constexpr int64_t kTileBytes = kTileSide * kNumbers;  // bytes of one operand's tile
constexpr int64_t kTileSums = kTileSide * kTileSide;

/// The AMX instructions. Blocks alternate between two sets of registers.
struct AmxInt8Tiles {
  template <int kSet>
  static HWY_INLINE void multiply(const int8_t* x, const int8_t* w, int32_t* sums) {
    if constexpr (kSet == 0) {
      _tile_zero(0);
      _tile_loadd(4, x, kNumbers);
      _tile_loadd(6, w, 64);
      _tile_dpbssd(0, 4, 6);
      _tile_stored(0, sums, 64);
    } else {
      _tile_zero(1);
      _tile_loadd(5, x, kNumbers);
      _tile_loadd(7, w, 64);
      _tile_dpbssd(1, 5, 7);
      _tile_stored(1, sums, 64);
    }
  }
};

/// The tile product in plain loops.
struct EmulatedInt8Tiles {
  template <int kSet>
  static void multiply(const int8_t* x, const int8_t* w, int32_t* sums) {
    for (int64_t i = 0; i < kTileSide; ++i) {
      for (int64_t j = 0; j < kTileSide; ++j) {
        int32_t sum = 0;
        for (int64_t l = 0; l < kNumbers; ++l) {
          sum += int32_t{x[i * kNumbers + l]} * w[(l / 4 * kTileSide + j) * 4 + l % 4];
        }
        sums[i * kTileSide + j] = sum;
      }
    }
  }
};

/// totals[i] += (w_scale · x_scales[i]) · sums[i] for the rows i of one block.
HWY_INLINE void add_scaled(const int32_t* sums, const float* x_scales, const float* w_scales, __m512* totals) {
  const __m512 w_scale = _mm512_loadu_ps(w_scales);
#pragma GCC unroll 16
  for (int64_t i = 0; i < kTileSide; ++i) {
    const __m512 sum = _mm512_cvtepi32_ps(_mm512_load_si512(sums + i * kTileSide));
    totals[i] = _mm512_fmadd_ps(sum, _mm512_mul_ps(w_scale, _mm512_set1_ps(x_scales[i])), totals[i]);
  }
}

template <class Tiles>
HWY_NOINLINE void multiply_scaled(const Int8Panels& panels, float beta, float* y) {
  // Local copies, so that the compiler need not read the pointers again after every store of a tile.
  const int8_t* x = panels.x;
  const int8_t* w = panels.w;
  const float* x_scales = panels.x_scales;
  const float* w_scales = panels.w_scales;
  const int64_t blocks = panels.blocks;
  alignas(64) int32_t even[kTileSums];
  alignas(64) int32_t odd[kTileSums];
  __m512 totals[kTileSide];
#pragma GCC unroll 16
  for (int64_t i = 0; i < kTileSide; ++i) {
    totals[i] = beta == 0.0F ? _mm512_setzero_ps() : _mm512_loadu_ps(y + i * kTileSide);
  }
  Tiles::template multiply<0>(x, w, even);
  int64_t block = 0;
  for (; block + 2 < blocks; block += 2) {
    Tiles::template multiply<1>(x + (block + 1) * kTileBytes, w + (block + 1) * kTileBytes, odd);
    add_scaled(even, x_scales + block * kTileSide, w_scales + block * kTileSide, totals);
    Tiles::template multiply<0>(x + (block + 2) * kTileBytes, w + (block + 2) * kTileBytes, even);
    add_scaled(odd, x_scales + (block + 1) * kTileSide, w_scales + (block + 1) * kTileSide, totals);
  }
  const bool two_left = block + 2 == blocks;
  if (two_left) Tiles::template multiply<1>(x + (block + 1) * kTileBytes, w + (block + 1) * kTileBytes, odd);
  add_scaled(even, x_scales + block * kTileSide, w_scales + block * kTileSide, totals);
  if (two_left) add_scaled(odd, x_scales + (block + 1) * kTileSide, w_scales + (block + 1) * kTileSide, totals);
#pragma GCC unroll 16
  for (int64_t i = 0; i < kTileSide; ++i) _mm512_storeu_ps(y + i * kTileSide, totals[i]);
}

}  // namespace
}  // namespace lamina::ops
HWY_POP_ATTRIBUTES
#endif

namespace lamina::ops {

#ifdef LAMINA_AMX_INT8
bool has_int8_tiles() {
  static const bool has = has_tiles(1U << 25);
  return has;
}
Int8TiledFn int8_tiled(TileUnit unit) {
  return unit == TileUnit::amx ? multiply_scaled<AmxInt8Tiles> : multiply_scaled<EmulatedInt8Tiles>;
}
#else
bool has_int8_tiles() { return false; }
Int8TiledFn int8_tiled(TileUnit /*unit*/) { return nullptr; }
#endif

}  // namespace lamina::ops
