// The microkernel of the GEMM, and the panels that it reads.
//
// A panel holds `width` rows of op(A), or columns of op(B), as [k][width], which is the order in which the microkernel
// reads them. It is converted to the computing type and padded with zeros to its width.
#if defined(LAMINA_OPS_LINEAR_GEMM_PANEL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LAMINA_OPS_LINEAR_GEMM_PANEL_INL_H_
#undef LAMINA_OPS_LINEAR_GEMM_PANEL_INL_H_
#else
#define LAMINA_OPS_LINEAR_GEMM_PANEL_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "lamina/base/simd-inl.h"
#include "lamina/base/transpose-inl.h"
#include "lamina/ops/linear/gemm/bf16_dot.h"
#include "lamina/ops/linear/gemm/bf16_tile.h"
#include "lamina/ops/linear/gemm/gemm_prefetch.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {
using namespace lamina::HWY_NAMESPACE;  // NOLINT: SIMD helpers of this target

// Size of one tile of C, in rows and vectors. The accumulators use nearly all registers, in the shape that needs the
// fewest loads per FMA.
#if HWY_TARGET <= HWY_AVX3
inline constexpr int kTileRows = 8;
inline constexpr int kTileVectors = 3;
#elif HWY_TARGET <= HWY_AVX2
inline constexpr int kTileRows = 4;
inline constexpr int kTileVectors = 3;
#else
inline constexpr int kTileRows = 4;
inline constexpr int kTileVectors = 2;
#endif

/// Elements of panels are numbers, or pairs of bf16 (gemm_pairs-inl.h); TiledPair is a pair for tile instructions
/// (gemm_tiled-inl.h).
template <class E>
inline constexpr bool kIsTiled = std::is_same_v<E, TiledPair>;
template <class E>
inline constexpr bool kIsPair = std::is_same_v<E, Bf16Pair> || kIsTiled<E>;
/// The type of sums of products of E.
template <class E>
using SumOf = std::conditional_t<kIsPair<E>, float, E>;

template <class E>
inline constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(hn::ScalableTag<SumOf<E>>()));
template <class E>
inline constexpr int64_t kVectorsOf = kIsTiled<E> ? 2 : kTileVectors;
template <class E>
inline constexpr int64_t kTileColumns = kVectorsOf<E>* kLanes<E>;
template <class E>
inline constexpr int64_t kRowsOf = kIsTiled<E> ? 2 * kTileSide : kTileRows;
/// Row panels at the edge of C have a multiple of this many rows.
template <class E>
inline constexpr int64_t kRowStep = kIsTiled<E> ? kTileSide : 4;
/// Depths of panels are a multiple of this.
template <class E>
inline constexpr int64_t kDepthStep = kIsTiled<E> ? kTileSide : 1;

/// to[l·width + i] = from[i·ld + l] for l in [0, k) and as many rows i as d has lanes. Transposes squares in registers.
template <class D, class S>
void transpose_rows(D d, const S* from, int64_t ld, int64_t k, float* to, int64_t width) {
  constexpr int kSide = static_cast<int>(hn::MaxLanes(d));
  int64_t l = 0;
  for (; l + kSide <= k; l += kSide) {
    hn::Vec<D> row[kSide];
#pragma GCC unroll 16
    for (int i = 0; i < kSide; ++i) row[i] = load(d, from + i * ld + l);
#pragma GCC unroll 16
    for (int i = 0; i < kSide; ++i) __builtin_prefetch(from + i * ld + l + kFetchAhead);
    transpose_square(d, row);
#pragma GCC unroll 16
    for (int i = 0; i < kSide; ++i) hn::StoreU(row[i], d, to + (l + i) * width);
  }
  for (; l < k; ++l) {
    for (int64_t i = 0; i < kSide; ++i) to[l * width + i] = convert<float>(from[i * ld + l]);
  }
}

/// Transposes the first rows in squares of up to kSide; returns the number of rows done.
template <int kSide, class S>
int64_t transpose_squares(const S* from, int64_t ld, int64_t count, int64_t k, float* to, int64_t width) {
  const hn::CappedTag<float, kSide> d;
  constexpr int kRows = static_cast<int>(hn::MaxLanes(d));
  int64_t i = 0;
  for (; i + kRows <= count; i += kRows) transpose_rows(d, from + i * ld, ld, k, to + i, width);
  if constexpr (kRows > 4) {
    i += transpose_squares<kRows / 2>(from + i * ld, ld, count - i, k, to + i, width);
  }
  return i;
}

/// Packs a panel from K-major rows, where element (i, l) is at from[i·ld + l]. `count` of the panel's `width` rows
/// exist.
template <class T, class S>
void pack_k_major(const S* from, int64_t ld, int64_t count, int64_t k, T* to, int64_t width) {
  int64_t i = 0;
  if constexpr (std::is_same_v<T, float>) i = transpose_squares<16>(from, ld, count, k, to, width);
  for (; i < count; ++i) {
    const S* row = from + i * ld;
    for (int64_t l = 0; l < k; ++l) to[l * width + i] = convert<T>(row[l]);
  }
  for (; i < width; ++i) {
    for (int64_t l = 0; l < k; ++l) to[l * width + i] = T{0};
  }
}

/// Packs a panel from rows stored across k, where element (i, l) is at from[l·ld + i].
template <class D, class T, class S>
void pack_mn_major(D d, const S* from, int64_t ld, int64_t count, int64_t k, T* to, int64_t width) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t whole = count / lanes * lanes;
  for (int64_t l = 0; l < k; ++l) {
    const S* row = from + l * ld;
    T* out = to + l * width;
    // Prefetched twice, because CPUs drop prefetches under load.
    for (int64_t i = 0; i < count; i += kCacheLine<S>) {
      __builtin_prefetch(row + 8 * ld + i);
      __builtin_prefetch(row + 16 * ld + i, 0, 2);
    }
    for (int64_t i = 0; i < whole; i += lanes) hn::StoreU(load(d, row + i), d, out + i);
    for (int64_t i = whole; i < count; ++i) out[i] = convert<T>(row[i]);
    for (int64_t i = count; i < width; ++i) out[i] = T{0};
  }
}

inline constexpr int kUnroll = 4;  // steps of k per iteration, because address arithmetic competes with the FMAs

/// sum += the outer product of step u: column u of the panel of A times row u of the panel of B.
template <int kRows, int kVectors, bool kDirect, class D, class T>
HWY_INLINE void add_outer_product(D d, const T* HWY_RESTRICT a, int64_t lda, const T* HWY_RESTRICT b, int u,
                                  hn::Vec<D> (&sum)[kRows][kVectors]) {
  hn::Vec<D> row[kVectors];
#pragma GCC unroll 3
  for (int v = 0; v < kVectors; ++v) row[v] = hn::Load(d, b + (u * kVectors + v) * kLanes<T>);
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
    const auto element = hn::Set(d, kDirect ? a[i * lda + u] : a[u * kRows + i]);
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v) sum[i][v] = hn::MulAdd(element, row[v], sum[i][v]);
  }
}

/// C tile = alpha · panel of A · panel of B + beta · C tile. If kDirect, A is not packed: element (i, l) is at a[i·lda
/// + l]. Prefetches into the L2 cache the memory from `ahead` on, which a later tile reads. The sum over k runs in
/// order, so an element of C does not depend on its tile.
template <int kRows, int kVectors, bool kDirect, class T>
HWY_NOINLINE void multiply_tile(int64_t k, const T* HWY_RESTRICT a, int64_t lda, const T* HWY_RESTRICT b, T alpha,
                                T beta, T* HWY_RESTRICT c, int64_t ldc, const T* ahead) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  V sum[kRows][kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v) sum[i][v] = hn::Zero(d);
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
    for (int v = 0; v < kVectors; ++v) hwy::Prefetch(c + i * ldc + v * kLanes<T>);
  }
  int64_t l = 0;
  for (; l + kUnroll <= k; l += kUnroll) {
#pragma GCC unroll 4
    for (int u = 0; u < kUnroll; ++u) add_outer_product<kRows, kVectors, kDirect>(d, a, lda, b, u, sum);
    __builtin_prefetch(ahead, 0, 2);
    ahead += kCacheLine<T>;
    a += kUnroll * (kDirect ? 1 : kRows);
    b += kUnroll * kVectors * kLanes<T>;
  }
  for (; l < k; ++l) {
    add_outer_product<kRows, kVectors, kDirect>(d, a, lda, b, 0, sum);
    a += kDirect ? 1 : kRows;
    b += kVectors * kLanes<T>;
  }
  const V scale = hn::Set(d, alpha);
  const V keep = hn::Set(d, beta);
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v) {
      T* at = c + i * ldc + v * kLanes<T>;
      V value = hn::Mul(sum[i][v], scale);
      if (beta != T{0}) value = hn::MulAdd(keep, hn::LoadU(d, at), value);
      hn::StoreU(value, d, at);
    }
  }
}

template <class E>
using TileFn = void (*)(int64_t, const E*, int64_t, const E*, SumOf<E>, SumOf<E>, SumOf<E>*, int64_t, const E*);

/// The microkernel for a tile of `rows` (a multiple of kRowStep) by `vectors`. Not for TiledPair.
template <class E, int kRows = kTileRows, int kVectors = kTileVectors>
TileFn<E> tile_kernel(int64_t rows, int64_t vectors, bool direct) {
  if constexpr (kIsPair<E>) {
    return bf16_tile(rows, vectors, direct);
  } else {
    if (vectors < kVectors) {
      if constexpr (kVectors > 1) return tile_kernel<E, kRows, kVectors - 1>(rows, vectors, direct);
    }
    if (rows < kRows) {
      if constexpr (kRows > kRowStep<E>) return tile_kernel<E, kRows - kRowStep<E>, kVectors>(rows, vectors, direct);
    }
    if constexpr (kRows == kTileRows) {
      if (direct) return multiply_tile<kRows, kVectors, true, E>;
    }
    return multiply_tile<kRows, kVectors, false, E>;
  }
}

/// Merges a tile that extends beyond the edge of C: c = alpha · tile + beta · c for the rows and columns inside.
template <class T>
void merge_tile(const T* tile, int64_t ld, int64_t rows, int64_t columns, T alpha, T beta, T* c, int64_t ldc) {
  const hn::ScalableTag<T> d;
  const auto scale = hn::Set(d, alpha);
  const auto keep = hn::Set(d, beta);
  for (int64_t i = 0; i < rows; ++i) {
    for_vectors(d, columns, [&](int64_t j, size_t count) HWY_ATTR {
      T* at = c + i * ldc + j;
      auto value = hn::Mul(load_n(d, tile + i * ld + j, count), scale);
      if (beta != T{0}) value = hn::MulAdd(keep, load_n(d, at, count), value);
      store_n(d, value, at, count);
    });
  }
}

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
