// Products of small matrices that fit the L1 and L2 caches. A block of accumulators (some rows × up to kTileVectors
// vectors) stays in registers over the whole depth. Each step loads a few vectors of B and one broadcast element of A
// per row. A is read with two strides, so its transpose costs nothing, and nothing is packed. Blocks of 4 × 4 vectors
// are the fastest with AVX-512: 175 GFLOP/s on one core with an FMA limit of 179.
#if defined(LAMINA_OPS_ATTENTION_CPU_TILE_GEMM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LAMINA_OPS_ATTENTION_CPU_TILE_GEMM_INL_H_
#undef LAMINA_OPS_ATTENTION_CPU_TILE_GEMM_INL_H_
#else
#define LAMINA_OPS_ATTENTION_CPU_TILE_GEMM_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Rows are processed in steps of this size, possibly beyond m, so buffers must be padded to it.
inline constexpr int64_t kRowStep = 4;
#if HWY_TARGET <= HWY_AVX3
inline constexpr int kTileVectors = 4;  // 16 of 32 registers are accumulators
#else
inline constexpr int kTileVectors = 2;  // 8 of 16 registers are accumulators
#endif

/// C = factor · C + A·B
///   A(i, l) = a[i · a_row + l · a_depth]   [m, depth]
///   B       [depth, n], row stride ldb; n is a multiple of the vector length
///   C       [m, n], row stride ldc; up to kRowStep − 1 rows beyond m are read from A and written to C
template <class T>
struct TileProduct {
  int64_t m;
  int64_t n;
  int64_t depth;
  const T* a;
  int64_t a_row;
  int64_t a_depth;
  const T* b;
  int64_t ldb;
  T* c;
  int64_t ldc;
  /// Factor on the old C; with 0, C is overwritten without being read.
  T factor = 0;
  /// Optional: one factor per row, instead of `factor`.
  const T* row_factors = nullptr;
};

template <int kRows, int kVectors, class D, class T>
HWY_INLINE void tile_block(D d, const TileProduct<T>& p, const T* HWY_RESTRICT a, const T* HWY_RESTRICT b,
                           T* HWY_RESTRICT c, const T* row_factors) {
  const size_t lanes = hn::Lanes(d);
  hn::Vec<D> sum[kRows][kVectors];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sum[i][v] = hn::Zero(d);
  }
  for (int64_t l = 0; l < p.depth; ++l) {
    hn::Vec<D> row[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) row[v] = hn::LoadU(d, b + static_cast<size_t>(v) * lanes);
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      const auto element = hn::Set(d, a[i * p.a_row]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sum[i][v] = hn::MulAdd(element, row[v], sum[i][v]);
    }
    a += p.a_depth;
    b += p.ldb;
  }
  const bool overwrite = row_factors == nullptr && p.factor == T{0};
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
    const auto factor = hn::Set(d, row_factors != nullptr ? row_factors[i] : p.factor);
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      T* at = c + i * p.ldc + v * static_cast<int64_t>(lanes);
      hn::StoreU(overwrite ? sum[i][v] : hn::MulAdd(hn::LoadU(d, at), factor, sum[i][v]), d, at);
    }
  }
}

/// Blocks that are only a few vectors wide have eight rows: with fewer accumulators, FMA latency would stall them.
template <int kVectors, class D, class T>
HWY_NOINLINE void tile_columns(D d, const TileProduct<T>& p, int64_t column) {
  constexpr int kRows = kTileVectors == 4 && kVectors < 4 ? 8 : 4;
  for (int64_t i = 0; i < p.m;) {
    const T* a = p.a + i * p.a_row;
    T* c = p.c + i * p.ldc + column;
    const T* factors = p.row_factors != nullptr ? p.row_factors + i : nullptr;
    if (p.m - i > kRows - kRowStep) {
      tile_block<kRows, kVectors>(d, p, a, p.b + column, c, factors);
      i += kRows;
    } else {
      tile_block<kRowStep, kVectors>(d, p, a, p.b + column, c, factors);
      i += kRowStep;
    }
  }
}

template <class T>
HWY_INLINE void tile_gemm(const TileProduct<T>& p) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t column = 0; column < p.n;) {
    const int64_t vectors = std::min<int64_t>((p.n - column) / lanes, kTileVectors);
    if (vectors == 4) tile_columns<4>(d, p, column);
    if (vectors == 3) tile_columns<3>(d, p, column);
    if (vectors == 2) tile_columns<2>(d, p, column);
    if (vectors == 1) tile_columns<1>(d, p, column);
    column += vectors * lanes;
  }
}

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
