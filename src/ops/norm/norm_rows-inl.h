// Row kernels shared by RMS norm (kCentred false: the mean is not taken off) and layer norm (kCentred true). A group is
// what shares one pair of statistics: a row, or a part of it.
//
// A group is read from memory once; further passes find it in the caches. While one is written, the next is asked for,
// because otherwise memory would idle during the passes that do not read it. The sums use several accumulators, always
// the same number, so that neither latency nor the number of threads shows. Outputs larger than the caches are streamed
// past them. Weight gradients are summed over blocks of kBlock rows in registers, then per range of rows, then over the
// ranges in order.
#if defined(LAMINA_OPS_NORM_NORM_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LAMINA_OPS_NORM_NORM_ROWS_INL_H_
#undef LAMINA_OPS_NORM_NORM_ROWS_INL_H_
#else
#define LAMINA_OPS_NORM_NORM_ROWS_INL_H_
#endif

#include <hwy/highway.h>

#include <cmath>

#include "lamina/base/simd_stream-inl.h"
#include "lamina/tensor/tensor.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {
using namespace lamina::HWY_NAMESPACE;  // NOLINT: the vector helpers of this target

template <class T>
struct NormForwardRows {
  using A = Accumulate<T>;
  const T* x;
  const T* residual;  ///< or null
  const A* scale;     ///< [width] or null
  const A* bias;      ///< [width] or null
  T* h;               ///< x + residual, or null
  T* y;
  A* mean;  ///< [groups], for kCentred
  A* r;     ///< [groups]
  int64_t groups, group, width;
  double eps;
};

template <class T>
struct NormBackwardRows {
  using A = Accumulate<T>;
  const T* x;
  const T* dy;
  const T* dh;     ///< or null
  const A* scale;  ///< or null
  const A* mean;
  const A* r;
  T* dx;
  A* dscale;                          ///< [ranges, width] or null
  A* dbias;                           ///< [ranges, width] or null
  int64_t rows, group, width, grain;  ///< grain: rows per range
};

template <class T>
T* data_or_null(const Tensor& tensor) {
  return tensor.defined() ? tensor.data<T>() : nullptr;
}
template <class T>
const T* at_or_null(const T* first, int64_t offset) {
  return first == nullptr ? nullptr : first + offset;
}
template <class T>
T* at_or_null(T* first, int64_t offset) {
  return first == nullptr ? nullptr : first + offset;
}

/// Asks for the cache line at p to be brought to the second level. An address past the end does no harm.
template <class T>
HWY_INLINE void prefetch(const T* p) {
  __builtin_prefetch(p, 0, 2);
}

inline constexpr int kSums = 4;

/// Σ term(i, count, k) over [0, n) in kSums accumulators; k, known when compiling, tells which of them the term joins.
template <class D, class F>
HWY_INLINE hn::TFromD<D> sum_vectors(D d, int64_t n, const F& term) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto whole = static_cast<size_t>(lanes);
  auto s0 = hn::Zero(d);
  auto s1 = s0;
  auto s2 = s0;
  auto s3 = s0;
  int64_t i = 0;
  for (; i + kSums * lanes <= n; i += kSums * lanes) {
    s0 = hn::Add(s0, term(i, whole, 0));
    s1 = hn::Add(s1, term(i + lanes, whole, 1));
    s2 = hn::Add(s2, term(i + 2 * lanes, whole, 2));
    s3 = hn::Add(s3, term(i + 3 * lanes, whole, 3));
  }
  for (; i < n; i += lanes) s0 = hn::Add(s0, term(i, static_cast<size_t>(std::min(lanes, n - i)), 0));
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
}

/// The i-th elements of x, or of h = x + residual, which is stored first.
template <class D, class T>
HWY_INLINE hn::Vec<D> load_sum(D d, const T* x, const T* residual, T* h, int64_t i, size_t count) {
  const auto v = load_n(d, x + i, count);
  if (residual == nullptr) return v;
  store_n(d, hn::Add(v, load_n(d, residual + i, count)), h + i, count);
  return load_n(d, h + i, count);  // what later layers see, rounded to T
}

/// Mean and 1/σ of one group. The variance is taken around the mean in a second pass: exact where a sum of squares
/// would cancel. The vectors behind the end of a group must not count, hence the mask.
template <bool kCentred, class T>
HWY_INLINE void statistics(const NormForwardRows<T>& args, int64_t g) {
  using A = Accumulate<T>;
  const ComputeTag<T> d;
  const int64_t at = g * args.group;
  const int64_t n = args.group;
  const T* x = args.x + at;
  const T* residual = at_or_null(args.residual, at);
  T* h = at_or_null(args.h, at);
  A squares = 0;
  if constexpr (kCentred) {
    const A sum = sum_vectors(
        d, n, [&](int64_t i, size_t count, int /*k*/) HWY_ATTR { return load_sum(d, x, residual, h, i, count); });
    args.mean[g] = sum / static_cast<A>(n);
    const auto mean = hn::Set(d, args.mean[g]);
    const T* from = h != nullptr ? h : x;
    squares = sum_vectors(d, n, [&](int64_t i, size_t count, int /*k*/) HWY_ATTR {
      auto v = hn::Sub(load_n(d, from + i, count), mean);
      if (count != hn::Lanes(d)) v = hn::IfThenElseZero(hn::FirstN(d, count), v);
      return hn::Mul(v, v);
    });
  } else {
    squares = sum_vectors(d, n, [&](int64_t i, size_t count, int /*k*/) HWY_ATTR {
      const auto v = load_sum(d, x, residual, h, i, count);
      return hn::Mul(v, v);
    });
  }
  args.r[g] = A{1} / std::sqrt(squares / static_cast<A>(n) + static_cast<A>(args.eps));
}

/// y of one group whose statistics are known.
template <bool kCentred, class T>
HWY_INLINE void normalize(const NormForwardRows<T>& args, int64_t g, bool streaming) {
  const ComputeTag<T> d;
  const int64_t at = g * args.group;
  const T* from = (args.h != nullptr ? args.h : args.x) + at;
  const T* next = args.x + at + args.group;
  const T* next_residual = at_or_null(args.residual, at + args.group);
  const auto* scale = at_or_null(args.scale, at % args.width);
  const auto* bias = at_or_null(args.bias, at % args.width);
  const auto r = hn::Set(d, args.r[g]);
  const auto mean = kCentred ? hn::Set(d, args.mean[g]) : hn::Zero(d);
  for_vectors(d, args.group, [&](int64_t i, size_t count) HWY_ATTR {
    prefetch(next + i);
    if (next_residual != nullptr) prefetch(next_residual + i);
    auto v = load_n(d, from + i, count);
    if constexpr (kCentred) v = hn::Sub(v, mean);
    v = hn::Mul(v, r);
    if (scale != nullptr) v = hn::Mul(v, load_n(d, scale + i, count));
    if (bias != nullptr) v = hn::Add(v, load_n(d, bias + i, count));
    put_n(d, v, args.y + at + i, count, streaming);
  });
}

template <bool kCentred, class T>
void norm_forward_rows(const Threads& threads, const NormForwardRows<T>& args) {
  const bool streaming = should_stream(args.y, args.groups * args.group, args.group);
  threads.ranges(args.groups, rows_per_range(args.group, 65536), [&](int64_t begin, int64_t end) HWY_ATTR {
    for (int64_t g = begin; g < end; ++g) {
      statistics<kCentred>(args, g);
      normalize<kCentred>(args, g, streaming);
    }
    if (streaming) hwy::FlushStream();
  });
}

/// Rows whose weight gradients are summed in registers before they meet memory.
inline constexpr int kBlock = 4;

/// dx = r·(g − mean(g) − x̂·mean(g·x̂)) with g = dy·scale and x̂ = (x − μ)·r; for RMS norm μ = 0 and mean(g) is left out.
/// With c = mean(g·x̂)·r it is r·(g − mean(g) − c·(x − μ)): two numbers to find per group.
template <class V>
struct Pull {
  V r, mean, c, mean_g;
};

template <bool kCentred, class T>
HWY_INLINE auto find_pull(const NormBackwardRows<T>& args, int64_t row, int64_t in_row) {
  using A = Accumulate<T>;
  const ComputeTag<T> d;
  const int64_t n = args.group;
  const int64_t at = row * args.width + in_row;
  const int64_t g = at / n;
  const T* x = args.x + at;
  const T* dy = args.dy + at;
  const A* scale = at_or_null(args.scale, in_row);
  // A single element is its own mean: its gradient is zero, which rounding must not blur.
  const A r = kCentred && n == 1 ? A{0} : args.r[g];
  const A mean = kCentred ? args.mean[g] : A{0};
  const auto mean_v = hn::Set(d, mean);
  hn::Vec<ComputeTag<T>> sums_g[kSums] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
  const A dot = sum_vectors(d, n, [&](int64_t i, size_t count, [[maybe_unused]] int k) HWY_ATTR {
    auto grad = load_n(d, dy + i, count);
    if (scale != nullptr) grad = hn::Mul(grad, load_n(d, scale + i, count));
    if constexpr (!kCentred) return hn::Mul(grad, load_n(d, x + i, count));
    sums_g[k] = hn::Add(sums_g[k], grad);
    return hn::Mul(grad, hn::Sub(load_n(d, x + i, count), mean_v));
  });
  const A c = dot * r * r / static_cast<A>(n);
  const auto sum_g = hn::Add(hn::Add(sums_g[0], sums_g[1]), hn::Add(sums_g[2], sums_g[3]));
  const A mean_g = kCentred ? hn::GetLane(hn::SumOfLanes(d, sum_g)) / static_cast<A>(n) : A{0};
  return Pull<hn::Vec<ComputeTag<T>>>{hn::Set(d, r), mean_v, hn::Set(d, c), hn::Set(d, mean_g)};
}

/// dx of `kRows` rows at one group's columns, and their share of the weight gradients.
template <bool kCentred, int kRows, class T>
HWY_INLINE void backward_block(const NormBackwardRows<T>& args, int64_t row, int64_t in_row, int64_t range,
                               bool streaming) {
  const ComputeTag<T> d;
  using V = hn::Vec<ComputeTag<T>>;
  Pull<V> pulls[kRows];
  for (int k = 0; k < kRows; ++k) pulls[k] = find_pull<kCentred>(args, row + k, in_row);
  const auto* scale = at_or_null(args.scale, in_row);
  auto* dscale = at_or_null(args.dscale, range * args.width + in_row);
  auto* dbias = at_or_null(args.dbias, range * args.width + in_row);
  const int64_t first = row * args.width + in_row;
  const int64_t ahead = kRows * args.width;
  // Rows may lie a multiple of 4096 bytes apart, and a load waits for an older store of the same low address bits: all
  // loads come before the stores.
  for_vectors(d, args.group, [&](int64_t i, size_t count) HWY_ATTR {
    V dx[kRows];
    auto dscale_v = hn::Zero(d);
    auto dbias_v = hn::Zero(d);
    const auto scale_v = scale != nullptr ? load_n(d, scale + i, count) : hn::Set(d, Accumulate<T>{1});
    for (int k = 0; k < kRows; ++k) {
      const int64_t at = first + k * args.width + i;
      prefetch(args.x + at + ahead);
      prefetch(args.dy + at + ahead);
      auto x = load_n(d, args.x + at, count);
      if constexpr (kCentred) x = hn::Sub(x, pulls[k].mean);
      const auto dy = load_n(d, args.dy + at, count);
      dscale_v = hn::MulAdd(hn::Mul(dy, x), pulls[k].r, dscale_v);
      if constexpr (kCentred) dbias_v = hn::Add(dbias_v, dy);
      auto v = hn::Mul(dy, scale_v);
      if constexpr (kCentred) v = hn::Sub(v, pulls[k].mean_g);
      dx[k] = hn::Mul(hn::NegMulAdd(x, pulls[k].c, v), pulls[k].r);
      if (args.dh != nullptr) dx[k] = hn::Add(dx[k], load_n(d, args.dh + at, count));
    }
    for (int k = 0; k < kRows; ++k) put_n(d, dx[k], args.dx + first + k * args.width + i, count, streaming);
    if (dscale != nullptr) store_n(d, hn::Add(load_n(d, dscale + i, count), dscale_v), dscale + i, count);
    if (dbias != nullptr) store_n(d, hn::Add(load_n(d, dbias + i, count), dbias_v), dbias + i, count);
  });
}

template <bool kCentred, class T>
void norm_backward_rows(const Threads& threads, const NormBackwardRows<T>& args) {
  const bool streaming = should_stream(args.dx, args.rows * args.width, args.group);
  threads.ranges(args.rows, args.grain, [&](int64_t begin, int64_t end) HWY_ATTR {
    const int64_t range = begin / args.grain;
    if (args.dscale != nullptr) std::fill_n(args.dscale + range * args.width, args.width, Accumulate<T>{0});
    if (args.dbias != nullptr) std::fill_n(args.dbias + range * args.width, args.width, Accumulate<T>{0});
    int64_t row = begin;
    for (; row + kBlock <= end; row += kBlock) {
      for (int64_t in_row = 0; in_row < args.width; in_row += args.group) {
        backward_block<kCentred, kBlock>(args, row, in_row, range, streaming);
      }
    }
    for (; row < end; ++row) {
      for (int64_t in_row = 0; in_row < args.width; in_row += args.group) {
        backward_block<kCentred, 1>(args, row, in_row, range, streaming);
      }
    }
    if (streaming) hwy::FlushStream();
  });
}

/// Rows per range of a backward pass: at most 64 partial sums of the weight gradients, whatever the batch.
inline int64_t backward_grain(int64_t rows, int64_t width) {
  const int64_t grain = std::max(rows_per_range(width, 65536), (rows + 63) / 64);
  return (grain + kBlock - 1) / kBlock * kBlock;
}

/// total = Σ_k partial[k], in order.
template <class A>
void add_partials(const Threads& threads, const Tensor& partial_in, const Tensor& total_in) {
  const int64_t parts = partial_in.dim(0);
  const int64_t width = partial_in.dim(1);
  const A* partial = partial_in.data<A>();
  A* total = total_in.data<A>();
  threads.ranges(width, 1024, [&](int64_t begin, int64_t end) HWY_ATTR {
    std::fill(total + begin, total + end, A{0});
    for (int64_t k = 0; k < parts; ++k) {
      for (int64_t i = begin; i < end; ++i) total[i] += partial[k * width + i];
    }
  });
}

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
