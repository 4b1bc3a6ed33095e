// Products with few rows of A. They are limited by reading B, so B is read only once.
#if defined(LAMINA_OPS_LINEAR_GEMM_THIN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LAMINA_OPS_LINEAR_GEMM_THIN_INL_H_
#undef LAMINA_OPS_LINEAR_GEMM_THIN_INL_H_
#else
#define LAMINA_OPS_LINEAR_GEMM_THIN_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "lamina/base/simd-inl.h"
#include "lamina/base/transpose-inl.h"
#include "lamina/ops/linear/gemm.h"
#include "lamina/ops/linear/gemm/bf16_dot.h"
#include "lamina/ops/linear/gemm/gemm_scratch.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {
using namespace lamina::HWY_NAMESPACE;  // NOLINT: SIMD helpers of this target

/// Maximum number of rows if B is stored across k (kThinRows) and if it is K-major (kThinRowsAlong). In the second case
/// a few columns stay in the L1 cache while all rows, four at a time, are multiplied with them.
inline constexpr int64_t kThinRows = 4;
inline constexpr int64_t kThinRowsAlong = 16;

inline constexpr int64_t kDotRowBytes = 24576;  // bytes of the rows per section of k, so that they stay in the L1 cache
inline constexpr int64_t kDotRange = 96;        // columns for which a section of the rows is reused from L1
inline constexpr int64_t kNearBytes = 1024;     // prefetch distance if columns are read only once
// Columns at a time for one row, limited by registers.
inline constexpr int kOneRowColumns = HWY_TARGET <= HWY_AVX3 ? 8 : 4;

/// The next columns to prefetch. Each pass over the current columns prefetches kFetch of them, so that all passes
/// together prefetch every next column. Hardware prefetchers stop at page boundaries.
template <int kFetch, class S>
struct PrefetchColumns {
  const S* columns[kFetch];
};

/// Sum of the 128-bit blocks of a vector, lane by lane.
template <class D>
HWY_INLINE auto sum_of_blocks(D /*d*/, hn::Vec<D> value) {
  if constexpr (hn::MaxLanes(D()) * sizeof(hn::TFromD<D>) <= 16) {
    return value;
  } else {
    const hn::Half<D> half;
    return sum_of_blocks(half, hn::Add(hn::LowerHalf(half, value), hn::UpperHalf(half, value)));
  }
}

/// out[i] += the horizontal sum of values[i].
template <int kCount, class D>
HWY_INLINE void add_sums_of_lanes(D d, const hn::Vec<D>* values, hn::TFromD<D>* out) {
  if constexpr (kCount == 4 && sizeof(hn::TFromD<D>) == 4) {
    hn::Vec<D> row[4] = {values[0], values[1], values[2], values[3]};
    transpose_blocks(d, row);
    const auto sums = sum_of_blocks(d, hn::Add(hn::Add(row[0], row[1]), hn::Add(row[2], row[3])));
    const hn::DFromV<decltype(sums)> four;
    hn::StoreU(hn::Add(hn::LoadU(four, out), sums), four, out);
  } else {
    for (int i = 0; i < kCount; ++i) out[i] += hn::GetLane(hn::SumOfLanes(d, values[i]));
  }
}

/// sums[j·ld + i] += x_i · w_j for kRows vectors x_i with stride ldx, and kColumns vectors w_j with stride ldw.
template <int kRows, int kColumns, int kFetch, class T, class S>
void dot_rows(const T* x, int64_t ldx, const S* w, int64_t ldw, int64_t k, T* sums, int64_t ld,
              const PrefetchColumns<kFetch, S>& ahead) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  constexpr int kParts = kRows > 1 && kRows * kColumns > 4 ? 1 : 2;  // independent sums to hide the FMA latency
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  V sum[kColumns][kParts][kRows];
  for (int i = 0; i < kRows * kColumns * kParts; ++i) (&sum[0][0][0])[i] = hn::Zero(d);
  int64_t l = 0;
  for (; l + kParts * lanes <= k; l += kParts * lanes) {
#pragma GCC unroll 2
    for (int part = 0; part < kParts; ++part) {
      const int64_t at = l + part * lanes;
#pragma GCC unroll 8
      for (int j = 0; j < kFetch; ++j) hwy::Prefetch(ahead.columns[j] + at);
      V given[kRows];
#pragma GCC unroll 4
      for (int i = 0; i < kRows; ++i) given[i] = hn::LoadU(d, x + i * ldx + at);
#pragma GCC unroll 8
      for (int j = 0; j < kColumns; ++j) {
        const V value = load(d, w + j * ldw + at);
#pragma GCC unroll 4
        for (int i = 0; i < kRows; ++i) sum[j][part][i] = hn::MulAdd(value, given[i], sum[j][part][i]);
      }
    }
  }
  for (; l < k; l += lanes) {
    const auto count = static_cast<size_t>(std::min(lanes, k - l));
    for (int j = 0; j < kColumns; ++j) {
      const V value = load_n(d, w + j * ldw + l, count);
      for (int i = 0; i < kRows; ++i) {
        sum[j][0][i] = hn::MulAdd(value, load_n(d, x + i * ldx + l, count), sum[j][0][i]);
      }
    }
  }
#pragma GCC unroll 8
  for (int j = 0; j < kColumns; ++j) {
    for (int part = 1; part < kParts; ++part) {
      for (int i = 0; i < kRows; ++i) sum[j][0][i] = hn::Add(sum[j][0][i], sum[j][part][i]);
    }
    add_sums_of_lanes<kRows>(d, sum[j][0], sums + j * ld);
  }
}

/// dot_rows() for bf16 operands, with bf16 dot instructions.
template <int kRows, int kColumns, int kFetch>
void dot_rows(const bf16* x, int64_t ldx, const bf16* w, int64_t ldw, int64_t k, float* sums, int64_t ld,
              const PrefetchColumns<kFetch, bf16>& ahead) {
  bf16_dots(kRows, kColumns, kFetch)(x, ldx, w, ldw, k, sums, ld, ahead.columns);
}

/// dot_rows() for `count` rows, at most kRows.
template <int kRows, int kColumns, int kFetch, class X, class T, class S>
void dot_some_rows(int64_t count, const X* x, int64_t ldx, const S* w, int64_t ldw, int64_t k, T* sums, int64_t ld,
                   const PrefetchColumns<kFetch, S>& ahead) {
  if (count >= kRows) return dot_rows<kRows, kColumns>(x, ldx, w, ldw, k, sums, ld, ahead);
  if constexpr (kRows > 1) dot_some_rows<kRows - 1, kColumns>(count, x, ldx, w, ldw, k, sums, ld, ahead);
}

/// Length of a section of k, such that a section of all rows, of type X, stays in the L1 cache.
template <class X, class T>
int64_t section_depth(const FusedGemm<T>& p) {
  return std::max<int64_t>(kDotRowBytes / static_cast<int64_t>(sizeof(X)) / p.m / 64 * 64, 64);
}

/// Copies the rows so that each section of k is contiguous. Rows that are far apart would map to the same cache sets.
template <class T, class X>
const X* pack_stretches(const FusedGemm<T>& p, const X* x) {
  const int64_t stretch = section_depth<X>(p);
  if (p.m == 1 || p.k <= stretch) return x;
  X* packed = gemm_scratch<X>(GemmScratch::shared_rows, p.m * p.k);
  for (int64_t k0 = 0; k0 < p.k; k0 += stretch) {
    const int64_t depth = std::min(stretch, p.k - k0);
    for (int64_t i = 0; i < p.m; ++i) std::copy_n(x + i * p.k + k0, depth, packed + k0 * p.m + i * depth);
  }
  return packed;
}

/// Columns [begin, end) as dot products, one section of k at a time. kColumns columns are processed together to read x
/// less often. They are far apart: each starts a run of consecutive columns, so the hardware prefetches kColumns
/// streams. A single stream reaches only two thirds of the memory bandwidth. The sums are stored column by column.
template <int kRows, int kColumns, int kFetch, class S, class T, class X>
void dot_blocks(const FusedGemm<T>& p, const X* x, int64_t begin, int64_t end, T* sums) {
  const int64_t stretch = section_depth<X>(p);
  const int64_t length = (end - begin) / kColumns;
  const int64_t near = std::min(p.b.ld, kNearBytes / static_cast<int64_t>(sizeof(S)));
  std::fill(sums, sums + (end - begin) * p.m, T{0});
  for (int64_t k0 = 0; k0 < p.k; k0 += stretch) {
    const int64_t depth = std::min(stretch, p.k - k0);
    const S* b = static_cast<const S*>(p.b.data) + begin * p.b.ld + k0;
    for (int64_t j = 0; j < length; ++j) {
      for (int64_t i = 0; i < p.m; i += kRows) {
        PrefetchColumns<kFetch, S> ahead;
        for (int f = 0; f < kFetch; ++f) {
          const int64_t column = j + (i / kRows * kFetch + f) % kColumns * length;
          ahead.columns[f] = b + column * p.b.ld + (p.m <= kRows ? near : p.b.ld);
        }
        dot_some_rows<kRows, kColumns>(p.m - i, x + k0 * p.m + i * depth, depth, b + j * p.b.ld, length * p.b.ld, depth,
                                       sums + j * p.m + i, length * p.m, ahead);
      }
    }
    for (int64_t j = length * kColumns; j < end - begin; ++j) {
      const PrefetchColumns<1, S> ahead{{b + (j + 1) * p.b.ld}};
      for (int64_t i = 0; i < p.m; i += kRows) {
        dot_some_rows<kRows, 1>(p.m - i, x + k0 * p.m + i * depth, depth, b + j * p.b.ld, p.b.ld, depth,
                                sums + j * p.m + i, p.m, ahead);
      }
    }
  }
}

/// Columns [begin, end) as dot products, returned as rows of sums with stride end − begin.
template <class S, class T, class X>
T* dot_columns(const FusedGemm<T>& p, const X* x, int64_t begin, int64_t end) {
  const int64_t columns = end - begin;
  T* sums = gemm_scratch<T>(GemmScratch::block, p.m * columns);
  if (p.m == 1) {
    dot_blocks<1, kOneRowColumns, kOneRowColumns, S>(p, x, begin, end, sums);
    return sums;
  }
  T* by_column = gemm_scratch<T>(GemmScratch::columns, p.m * columns);
  if (p.m <= 4) {
    dot_blocks<4, 6, 6, S>(p, x, begin, end, by_column);
  } else if (p.m <= 8) {
    dot_blocks<4, 6, 3, S>(p, x, begin, end, by_column);
  } else {
    dot_blocks<4, 6, 2, S>(p, x, begin, end, by_column);
  }
  for (int64_t i = 0; i < p.m; ++i) {
    for (int64_t j = 0; j < columns; ++j) sums[i * columns + j] = by_column[j * p.m + i];
  }
  return sums;
}

/// y_i += Σ_l x[i·k + l] · (row l of B) over `depth` rows of B, four rows at a time.
template <class T, class S>
void add_rows(int64_t m, const T* x, int64_t k, const S* b, int64_t ldb, int64_t depth, int64_t n, T* y) {
  const hn::ScalableTag<T> d;
  int64_t l = 0;
  for (; l + 4 <= depth; l += 4) {
    const S* rows = b + l * ldb;
    for_vectors(d, n, [&](int64_t j, size_t count) HWY_ATTR {
      const auto b0 = load_n(d, rows + j, count);
      const auto b1 = load_n(d, rows + ldb + j, count);
      const auto b2 = load_n(d, rows + 2 * ldb + j, count);
      const auto b3 = load_n(d, rows + 3 * ldb + j, count);
      for (int64_t i = 0; i < m; ++i) {
        const T* xi = x + i * k + l;
        auto value = load_n(d, y + i * n + j, count);
        value = hn::MulAdd(b0, hn::Set(d, xi[0]), value);
        value = hn::MulAdd(b1, hn::Set(d, xi[1]), value);
        value = hn::MulAdd(b2, hn::Set(d, xi[2]), value);
        value = hn::MulAdd(b3, hn::Set(d, xi[3]), value);
        store_n(d, value, y + i * n + j, count);
      }
    });
  }
  for (; l < depth; ++l) {
    for_vectors(d, n, [&](int64_t j, size_t count) HWY_ATTR {
      const auto row = load_n(d, b + l * ldb + j, count);
      for (int64_t i = 0; i < m; ++i) {
        const auto value = hn::MulAdd(row, hn::Set(d, x[i * k + l]), load_n(d, y + i * n + j, count));
        store_n(d, value, y + i * n + j, count);
      }
    });
  }
}

/// Writes columns [begin, end) of C from their sums (row stride `ld`) and runs the epilogue.
template <class T>
void finish_columns(const FusedGemm<T>& p, T* sums, int64_t ld, int64_t begin, int64_t end) {
  T* c = p.c != nullptr ? p.c + begin : sums;
  const int64_t ldc = p.c != nullptr ? p.ldc : ld;
  const hn::ScalableTag<T> d;
  const auto scale = hn::Set(d, p.alpha);
  const auto keep = hn::Set(d, p.beta);
  for (int64_t i = 0; i < p.m; ++i) {
    for_vectors(d, end - begin, [&](int64_t j, size_t count) HWY_ATTR {
      auto value = hn::Mul(scale, load_n(d, sums + i * ld + j, count));
      if (p.beta != T{0}) value = hn::MulAdd(keep, load_n(d, c + i * ldc + j, count), value);
      store_n(d, value, c + i * ldc + j, count);
    });
  }
  if (p.finish) p.finish(c, ldc, {0, p.m, begin, end - begin});
}

/// Columns per task for a single row. Columns are independent, so the split may depend on the number of threads: two
/// tasks per thread. Each task must start its memory streams, so tasks must not be short; the last ones must not be so
/// long that other threads wait for them.
inline int64_t stream_range(const Threads& threads, int64_t columns, int64_t k) {
  constexpr int64_t kFewest = 8192;
  constexpr int64_t kMost = 262144;
  const int64_t elements = std::clamp<int64_t>(columns * k / (2 * threads.count()), kFewest, kMost);
  return std::max<int64_t>(2, rows_per_range(k, elements) / kOneRowColumns) * kOneRowColumns;
}

/// Thin product with K-major op(B): each column is a dot product.
template <class S, class T, class X>
void thin_k_major(const Threads& threads, const FusedGemm<T>& p, const X* x) {
  x = pack_stretches(p, x);
  const int64_t grain = p.m > kThinRows ? kDotRange
                        : p.m > 1       ? std::max<int64_t>(16, rows_per_range(p.k) / 4 * 4)
                                        : stream_range(threads, p.n, p.k);
  threads.ranges(p.n, grain, [&](int64_t begin, int64_t end) HWY_ATTR {
    finish_columns(p, dot_columns<S>(p, x, begin, end), end - begin, begin, end);
  });
}

/// Thin product with op(B) stored across k: reads whole rows of B. k is split into a number of parts that depends only
/// on the sizes; the parts are added in order. Short parts round less.
template <class T, class S>
void thin_mn_major(const Threads& threads, const FusedGemm<T>& p, const T* x) {
  const S* b = static_cast<const S*>(p.b.data);
  const int64_t parts = std::clamp<int64_t>(std::max(p.k * p.n / 65536, p.k / 256), 1, std::min<int64_t>(16, p.k));
  T* partial = gemm_scratch<T>(GemmScratch::columns, parts * p.m * p.n);
  threads.tasks(parts, [&](int64_t part) HWY_ATTR {
    const int64_t begin = part * p.k / parts;
    const int64_t end = (part + 1) * p.k / parts;
    T* sums = partial + part * p.m * p.n;
    std::fill(sums, sums + p.m * p.n, T{0});
    add_rows(p.m, x + begin, p.k, b + begin * p.b.ld, p.b.ld, end - begin, p.n, sums);
  });
  const hn::ScalableTag<T> d;
  threads.ranges(p.n, 4096, [&](int64_t begin, int64_t end) HWY_ATTR {
    for (int64_t part = 1; part < parts; ++part) {
      for (int64_t i = 0; i < p.m; ++i) {
        T* total = partial + i * p.n + begin;
        const T* more = total + part * p.m * p.n;
        for_vectors(d, end - begin, [&](int64_t j, size_t count) HWY_ATTR {
          store_n(d, hn::Add(load_n(d, total + j, count), load_n(d, more + j, count)), total + j, count);
        });
      }
    }
    finish_columns(p, partial + begin, p.n, begin, end);
  });
}

/// The rows of op(A), contiguous and in the computing type: in place if possible, else converted.
template <class T>
const T* thin_rows(const FusedGemm<T>& p) {
  if (!p.a.transpose && p.a.dtype == dtype_of<T>() && (p.a.ld == p.k || p.m == 1)) {
    return static_cast<const T*>(p.a.data);
  }
  const hn::ScalableTag<T> d;
  T* x = gemm_scratch<T>(GemmScratch::rows, p.m * p.k);
  const auto copy = [&](auto tag) HWY_ATTR {
    const auto* from = static_cast<const typename decltype(tag)::type*>(p.a.data);
    for (int64_t i = 0; i < p.m; ++i) {
      if (p.a.transpose) {
        for (int64_t l = 0; l < p.k; ++l) x[i * p.k + l] = convert<T>(from[l * p.a.ld + i]);
      } else {
        for_vectors(d, p.k, [&](int64_t l, size_t count) HWY_ATTR {
          store_n(d, load_n(d, from + i * p.a.ld + l, count), x + i * p.k + l, count);
        });
      }
    }
  };
  if constexpr (std::is_same_v<T, double>) {
    copy(TypeTag<double>{});
  } else {
    switch (p.a.dtype) {
      case DType::bf16: copy(TypeTag<bf16>{}); break;
      case DType::f16: copy(TypeTag<f16>{}); break;
      default: copy(TypeTag<float>{});
    }
  }
  return x;
}

template <class T>
void run_thin(const Threads& threads, const FusedGemm<T>& p) {
  const T* x = thin_rows(p);
  const auto with = [&](auto tag) {
    using S = typename decltype(tag)::type;
    p.b.transpose ? thin_k_major<S>(threads, p, x) : thin_mn_major<T, S>(threads, p, x);
  };
  if constexpr (std::is_same_v<T, double>) {
    with(TypeTag<double>{});
  } else {
    switch (p.b.dtype) {
      case DType::bf16: with(TypeTag<bf16>{}); break;
      case DType::f16: with(TypeTag<f16>{}); break;
      default: with(TypeTag<float>{});
    }
  }
}

/// True if run_thin_bf16() supports the product: rows of bf16 times K-major bf16.
inline bool is_thin_bf16(const FusedGemm<float>& p) {
  return p.b.transpose && !p.a.transpose && p.a.dtype == DType::bf16 && p.b.dtype == DType::bf16;
}

/// Thin product by bf16 dot products: no operand is converted.
inline void run_thin_bf16(const Threads& threads, const FusedGemm<float>& p) {
  const bf16* x = static_cast<const bf16*>(p.a.data);
  if (p.a.ld != p.k && p.m > 1) {
    bf16* rows = gemm_scratch<bf16>(GemmScratch::rows, p.m * p.k);
    for (int64_t i = 0; i < p.m; ++i) std::copy_n(x + i * p.a.ld, p.k, rows + i * p.k);
    x = rows;
  }
  thin_k_major<bf16>(threads, p, x);
}

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
