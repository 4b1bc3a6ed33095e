// Packs rows of op(A) into panels for tile instructions (bf16_tile.h): [depth / 16][width][16 pairs]. Columns of op(B)
// are packed as pairs (gemm_pairs-inl.h) and padded along k.
#if defined(LAMINA_OPS_LINEAR_GEMM_TILED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LAMINA_OPS_LINEAR_GEMM_TILED_INL_H_
#undef LAMINA_OPS_LINEAR_GEMM_TILED_INL_H_
#else
#define LAMINA_OPS_LINEAR_GEMM_TILED_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>

#include "lamina/ops/linear/gemm/bf16_tile.h"
#include "lamina/ops/linear/gemm/gemm_pairs-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {

#if HWY_TARGET <= HWY_AVX3
inline constexpr int64_t kRowNumbers = 2 * kTileSide;  // numbers in one row of a tile

/// Packs one row of a tile of which only `count` numbers exist; `step` is their stride.
template <class S>
void pack_row_part(const S* from, int64_t step, int64_t count, TiledPair* to) {
  for (int64_t l = 0; l < kTileSide; ++l) {
    const uint32_t first = 2 * l < count ? bits_of(from[2 * l * step]) : 0;
    const uint32_t second = 2 * l + 1 < count ? bits_of(from[(2 * l + 1) * step]) : 0;
    to[l].bits = first | second << 16;
  }
}

/// Packs a panel from K-major rows, where number (i, l) is at from[i·ld + l]. `count` of the panel's `width` rows
/// exist, and `numbers` of 2·depth numbers along k.
template <class S>
void pack_tiled_k_major(const S* from, int64_t ld, int64_t count, int64_t numbers, int64_t depth, TiledPair* to,
                        int64_t width) {
  // Tiles along k per iteration, so that several cache lines of a row are read in sequence.
  constexpr int64_t kTogether = 4;
  const hn::FixedTag<float, kTileSide> d;
  const int64_t tiles = depth / kTileSide;
  for (int64_t first = 0; first < tiles; first += kTogether) {
    const int64_t last = std::min(tiles, first + kTogether);
    for (int64_t i = 0; i < width; ++i) {
      for (int64_t t = first; t < last; ++t) {
        TiledPair* out = to + (t * width + i) * kTileSide;
        const int64_t given = i < count ? std::min(numbers - t * kRowNumbers, kRowNumbers) : 0;
        const S* at = from + i * ld + t * kRowNumbers;
        if (given == kRowNumbers) {
          __builtin_prefetch(at + kFetchAhead);
          hn::Store(load_pairs(d, at), d, reinterpret_cast<float*>(out));
        } else {
          pack_row_part(at, 1, given, out);
        }
      }
    }
  }
}

/// Packs a panel from rows stored across k, where number (i, l) is at from[l·ld + i].
template <class S>
void pack_tiled_mn_major(const S* from, int64_t ld, int64_t count, int64_t numbers, int64_t depth, TiledPair* to,
                         int64_t width) {
  const hn::FixedTag<float, kTileSide> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const auto upper = hn::Set(du, 0xffff0000U);
  for (int64_t t = 0; t < depth / kTileSide; ++t) {
    const S* rows = from + t * kRowNumbers * ld;
    const int64_t given = std::min(numbers - t * kRowNumbers, kRowNumbers);
    for (int64_t i = 0; i < width; i += kTileSide) {
      TiledPair* out = to + (t * width + i) * kTileSide;
      if (given < kRowNumbers || i + kTileSide > count) {
        for (int64_t r = 0; r < kTileSide; ++r) {
          pack_row_part(rows + i + r, ld, i + r < count ? given : 0, out + r * kTileSide);
        }
        continue;
      }
      hn::Vec<decltype(d)> pairs[kTileSide];
#pragma GCC unroll 16
      for (int64_t l = 0; l < kTileSide; ++l) {
        const S* first = rows + 2 * l * ld + i;
        __builtin_prefetch(first + kRowNumbers * ld);
        __builtin_prefetch(first + (kRowNumbers + 1) * ld);
        const auto low = hn::ShiftRight<16>(bf16_bits(d, first));
        pairs[l] = hn::BitCast(d, hn::Or(low, hn::And(bf16_bits(d, first + ld), upper)));
      }
      transpose_square(d, pairs);
#pragma GCC unroll 16
      for (int64_t r = 0; r < kTileSide; ++r) hn::Store(pairs[r], d, reinterpret_cast<float*>(out + r * kTileSide));
    }
  }
}
#endif

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
