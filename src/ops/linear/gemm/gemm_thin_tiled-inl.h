// Products of few rows with K-major columns (x·Wᵀ) by tile instructions. The transposed product is computed: rows of W
// are the first operand, which tiles read in place, and the rows of x are packed once as the second. So W is read once
// from memory and never packed. Sums run over k as in the blocked product, so both give bit-identical results.
#if defined(LAMINA_OPS_LINEAR_GEMM_THIN_TILED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LAMINA_OPS_LINEAR_GEMM_THIN_TILED_INL_H_
#undef LAMINA_OPS_LINEAR_GEMM_THIN_TILED_INL_H_
#else
#define LAMINA_OPS_LINEAR_GEMM_THIN_TILED_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>

#include "lamina/ops/linear/gemm.h"
#include "lamina/ops/linear/gemm/bf16_tile.h"
#include "lamina/ops/linear/gemm/gemm_plan-inl.h"
#include "lamina/ops/linear/gemm/gemm_scratch.h"
#include "lamina/ops/linear/gemm/gemm_thin-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {

#if HWY_TARGET <= HWY_AVX3
/// Numbers of rows of x for which this is used. With fewer, dot products read W at memory bandwidth; with more, packing
/// W pays off.
inline constexpr int64_t kThinTiledLeast = 4;
inline constexpr int64_t kThinTiledMost = 96;

/// True if run_thin_tiled() supports the product, i.e. rows of W hold whole tiles.
inline bool is_thin_tiled(const FusedGemm<float>& p) {
  return p.m >= kThinTiledLeast && p.m <= kThinTiledMost &&
         holds_elements<TiledPair>({p.b.data, p.b.dtype, p.b.ld, !p.b.transpose}, p.k);
}

inline void run_thin_tiled(const Threads& threads, const FusedGemm<float>& p) {
  constexpr int64_t kSide = 2 * kTileSide;  // rows of W, and rows of x, that are processed at once
  const TileUnit unit = p.kernel == ProductKernel::bf16_tile_emulated ? TileUnit::emulated : TileUnit::amx;
  const int64_t depth = p.k / 2;
  const int64_t ldb = p.b.ld / 2;
  TiledPair* x = gemm_scratch<TiledPair>(GemmScratch::shared_rows, depth * round_up(p.m, kTileSide));
  for (int64_t i = 0; i < p.m; i += kSide) {
    const int64_t count = std::min(kSide, p.m - i);
    pack<TiledPair, true>({p.a.data, p.a.dtype, p.a.ld, !p.a.transpose}, p.k, i, count, 0, depth, x + i * depth,
                          round_up(count, kTileSide));
  }
  const int64_t grain = std::max<int64_t>(kSide, rows_per_range(p.k * 4) / kSide * kSide);
  threads.ranges(p.n, grain, [&](int64_t begin, int64_t end) HWY_ATTR {
    const TileScope scope(unit);
    const auto* w = static_cast<const TiledPair*>(p.b.data);
    const int64_t columns = end - begin;
    float* sums = gemm_scratch<float>(GemmScratch::block, p.m * columns);
    HWY_ALIGN float tile[kSide * kSide];
    for (int64_t j = begin; j < end; j += kSide) {
      const int64_t count = std::min(kSide, end - j);
      const int64_t height = round_up(count, kTileSide);
      const TiledPair* rows = w + j * ldb;
      const bool direct = count == height;
      if (!direct) {
        TiledPair* packed = gemm_scratch<TiledPair>(GemmScratch::rows, kSide * depth);
        pack<TiledPair, false>({p.b.data, p.b.dtype, p.b.ld, false}, p.k, j, count, 0, depth, packed, height);
        rows = packed;
      }
      for (int64_t i = 0; i < p.m; i += kSide) {
        const int64_t width = round_up(std::min(kSide, p.m - i), kTileSide);
        const TiledPair* ahead = i == 0 && j + 2 * kSide <= end ? w + (j + kSide) * ldb : x;
        bf16_tiled(unit, height, width / kTileSide, direct)(depth, rows, ldb, x + i * depth, 0.0F, tile, width, ahead);
        for (int64_t r = 0; r < std::min(kSide, p.m - i); ++r) {
          float* to = sums + (i + r) * columns + j - begin;
          for (int64_t l = 0; l < count; ++l) to[l] = tile[l * width + r];
        }
      }
    }
    finish_columns(p, sums, columns, begin, end);
  });
}
#endif

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
