// Dot products of queries with stored rows.
//
// Few queries: lanes hold dimensions, with one pass over the rows per query. Memory bandwidth is the limit.
//
// Many queries: a panel holds 32 queries, transposed to [dim, 32]. A tile of 8 rows x 32 queries stays in registers
// during one traversal of dim: per dimension, 8 broadcasts and 32/lanes loads feed 8 x 32/lanes multiply-adds. Scores
// are compared with the queries' thresholds in registers, so almost none of them are stored. f16 and u8 rows are first
// widened to f32, 8 rows at a time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/search/vector_kernels.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <type_traits>

#include "lamina/base/simd-inl.h"
#include "lamina/search/vector_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::search::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using lamina::HWY_NAMESPACE::load;
using lamina::HWY_NAMESPACE::load_some;

constexpr int64_t kTileRows = 8;
using Floats = hn::ScalableTag<float>;

/// Σ term(q, x) over one row. Four accumulators hide the latency of additions.
template <class T, class Term>
HWY_INLINE float row_sum(const float* query, const T* row, int64_t dim, const Term& term) {
  const Floats d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto s0 = hn::Zero(d);
  auto s1 = s0;
  auto s2 = s0;
  auto s3 = s0;
  int64_t i = 0;
  for (; i + 4 * lanes <= dim; i += 4 * lanes) {
    s0 = term(hn::LoadU(d, query + i), load(d, row + i), s0);
    s1 = term(hn::LoadU(d, query + i + lanes), load(d, row + i + lanes), s1);
    s2 = term(hn::LoadU(d, query + i + 2 * lanes), load(d, row + i + 2 * lanes), s2);
    s3 = term(hn::LoadU(d, query + i + 3 * lanes), load(d, row + i + 3 * lanes), s3);
  }
  for (; i + lanes <= dim; i += lanes) s0 = term(hn::LoadU(d, query + i), load(d, row + i), s0);
  if (i < dim) {
    const auto rest = static_cast<size_t>(dim - i);
    s1 = term(load_some(d, query + i, rest), load_some(d, row + i, rest), s1);
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
}

struct DotTerm {
  template <class V>
  HWY_INLINE V operator()(V q, V x, V sum) const {
    return hn::MulAdd(q, x, sum);
  }
};
struct SquaredDifference {
  hn::Vec<Floats> scale;
  template <class V>
  HWY_INLINE V operator()(V q, V x, V sum) const {
    const V difference = hn::NegMulAdd(scale, x, q);
    return hn::MulAdd(difference, difference, sum);
  }
};

/// Reads rows in arbitrary order and hides their memory latency. Call row(i) for i = 0, 1, …; the next kPrefetchBytes
/// of rows are then being prefetched.
template <class T>
class GatheredRows {
 public:
  GatheredRows(const VectorsView& vectors, const uint32_t* rows, int64_t n)
      : all_(reinterpret_cast<const T*>(vectors.data)),
        dim_(vectors.dim),
        rows_(rows),
        n_(n),
        ahead_(std::max<int64_t>(1, kPrefetchBytes / (vectors.dim * static_cast<int64_t>(sizeof(T))))) {
    for (int64_t i = 0; i < std::min(ahead_, n); ++i) prefetch(i);
  }

  HWY_INLINE const T* row(int64_t i) const {
    if (i + ahead_ < n_) prefetch(i + ahead_);
    return at(i);
  }

 private:
  static constexpr int64_t kPrefetchBytes = 2048;

  HWY_INLINE const T* at(int64_t i) const { return all_ + static_cast<int64_t>(rows_[i]) * dim_; }
  HWY_INLINE void prefetch(int64_t i) const {
    const auto* bytes = reinterpret_cast<const char*>(at(i));
    const auto size = dim_ * static_cast<int64_t>(sizeof(T));
    for (int64_t byte = 0; byte < size; byte += 64) hwy::Prefetch(bytes + byte);
  }

  const T* all_;
  int64_t dim_;
  const uint32_t* rows_;
  int64_t n_;
  int64_t ahead_;  ///< prefetch distance in rows
};

template <class F>
HWY_INLINE void with_type(DType dtype, const F& fn) {
  if (dtype == DType::f32) {
    fn(TypeTag<float>{});
  } else if (dtype == DType::f16) {
    fn(TypeTag<f16>{});
  } else {
    fn(TypeTag<uint8_t>{});
  }
}

void row_dots(const VectorsView& vectors, const float* query, int64_t begin, int64_t n, float* dots) {
  with_type(vectors.dtype, [&](auto tag) HWY_ATTR {
    using T = typename decltype(tag)::type;
    const auto* rows = reinterpret_cast<const T*>(vectors.data) + begin * vectors.dim;
    for (int64_t i = 0; i < n; ++i) dots[i] = row_sum(query, rows + i * vectors.dim, vectors.dim, DotTerm{});
  });
}

void gathered_dots(const VectorsView& vectors, const float* query, const uint32_t* rows, int64_t n, float* dots) {
  with_type(vectors.dtype, [&](auto tag) HWY_ATTR {
    using T = typename decltype(tag)::type;
    const GatheredRows<T> gathered(vectors, rows, n);
    for (int64_t i = 0; i < n; ++i) dots[i] = row_sum(query, gathered.row(i), vectors.dim, DotTerm{});
  });
}

void gathered_distances(const VectorsView& vectors, const float* query, const uint32_t* rows, int64_t n, float* out) {
  const Floats d;
  with_type(vectors.dtype, [&](auto tag) HWY_ATTR {
    using T = typename decltype(tag)::type;
    const GatheredRows<T> gathered(vectors, rows, n);
    for (int64_t i = 0; i < n; ++i) {
      const SquaredDifference term{hn::Set(d, vectors.scales == nullptr ? 1.0F : vectors.scales[rows[i]])};
      out[i] = row_sum(query, gathered.row(i), vectors.dim, term);
    }
  });
}

/// Converts `n` rows to f32.
template <class T>
HWY_INLINE void widen_rows(const T* rows, int64_t n, int64_t dim, float* to) {
  const Floats d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t all = n * dim;
  int64_t i = 0;
  for (; i + lanes <= all; i += lanes) hn::StoreU(load(d, rows + i), d, to + i);
  if (i < all) {
    const auto rest = static_cast<size_t>(all - i);
    HWY_ALIGN float last[hn::MaxLanes(d)];
    hn::Store(load_some(d, rows + i, rest), d, last);
    for (size_t k = 0; k < rest; ++k) to[i + static_cast<int64_t>(k)] = last[k];
  }
}

/// Scores kTileRows rows for one or more vectors of queries. All accumulators stay in registers.
template <int kVectors>
HWY_INLINE void score_tile(const float* rows, int64_t stride, int64_t n_rows, int64_t dim, const ScoreTerms& terms,
                           const float* panel, int64_t first_query, int64_t first_row, float* thresholds,
                           ScoreSink& sink) {
  const Floats d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  using V = hn::Vec<Floats>;
  const float* at[kTileRows];
  for (int64_t r = 0; r < kTileRows; ++r) at[r] = rows + std::min(r, n_rows - 1) * stride;
  V sums[kTileRows][kVectors];
  for (auto& row : sums) {
    for (V& sum : row) sum = hn::Zero(d);
  }
  const float* q = panel + first_query;
  for (int64_t i = 0; i < dim; ++i, q += kPanelQueries) {
    V queries[kVectors];
    for (int v = 0; v < kVectors; ++v) queries[v] = hn::LoadU(d, q + v * lanes);
    for (int64_t r = 0; r < kTileRows; ++r) {
      const V x = hn::Set(d, at[r][i]);
      for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::MulAdd(x, queries[v], sums[r][v]);
    }
  }
  for (int64_t r = 0; r < n_rows; ++r) {
    const int64_t row = first_row + r;
    const V scale = hn::Set(d, terms.scale == nullptr ? 1.0F : terms.scale[row]);
    const V bias = hn::Set(d, terms.bias == nullptr ? 0.0F : terms.bias[row]);
    for (int v = 0; v < kVectors; ++v) {
      const V score = hn::MulAdd(sums[r][v], scale, bias);
      const int64_t begin = first_query + v * lanes;
      const auto above = hn::Gt(score, hn::LoadU(d, thresholds + begin));
      if (HWY_LIKELY(hn::AllFalse(d, above))) continue;
      HWY_ALIGN float values[hn::MaxLanes(d)];
      hn::Store(score, d, values);
      for (int64_t lane = 0; lane < lanes; ++lane) {
        if (values[lane] > thresholds[begin + lane]) {
          thresholds[begin + lane] = sink.offer(begin + lane, row, values[lane]);
        }
      }
    }
  }
}

void packed_scores(const VectorsView& vectors, const ScoreTerms& terms, const float* panel, int64_t begin, int64_t n,
                   float* thresholds, float* scratch, ScoreSink& sink) {
  const Floats d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  constexpr int kVectors = hn::MaxLanes(d) >= 16 ? 2 : 1;  // 8 rows x kVectors accumulators fit the registers
  static_assert(kPanelQueries % (hn::MaxLanes(d) * kVectors) == 0);
  with_type(vectors.dtype, [&](auto tag) HWY_ATTR {
    using T = typename decltype(tag)::type;
    const auto* all = reinterpret_cast<const T*>(vectors.data);
    for (int64_t row = begin; row < begin + n; row += kTileRows) {
      const int64_t rows = std::min(kTileRows, begin + n - row);
      const float* from = scratch;
      if constexpr (std::is_same_v<T, float>) {
        from = all + row * vectors.dim;
      } else {
        widen_rows(all + row * vectors.dim, rows, vectors.dim, scratch);
      }
      for (int64_t query = 0; query < kPanelQueries; query += lanes * kVectors) {
        score_tile<kVectors>(from, vectors.dim, rows, vectors.dim, terms, panel, query, row, thresholds, sink);
      }
    }
  });
}

}  // namespace lamina::search::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lamina::search {
HWY_EXPORT(row_dots);
HWY_EXPORT(gathered_dots);
HWY_EXPORT(gathered_distances);
HWY_EXPORT(packed_scores);

void row_dots(const VectorsView& vectors, const float* query, int64_t begin, int64_t n, float* dots) {
  HWY_DYNAMIC_DISPATCH(row_dots)(vectors, query, begin, n, dots);
}
void gathered_dots(const VectorsView& vectors, const float* query, const uint32_t* rows, int64_t n, float* dots) {
  HWY_DYNAMIC_DISPATCH(gathered_dots)(vectors, query, rows, n, dots);
}
void gathered_distances(const VectorsView& vectors, const float* query, const uint32_t* rows, int64_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(gathered_distances)(vectors, query, rows, n, out);
}
void packed_scores(const VectorsView& vectors, const ScoreTerms& terms, const float* panel, int64_t begin, int64_t n,
                   float* thresholds, float* scratch, ScoreSink& sink) {
  HWY_DYNAMIC_DISPATCH(packed_scores)(vectors, terms, panel, begin, n, thresholds, scratch, sink);
}
}  // namespace lamina::search
#endif
