// CPU row kernels of RMS norm (kCentred false: the mean is not subtracted) and layer norm (kCentred true). A group is a
// row, or a part of a row that has its own mean and variance (RmsNormOptions::group_size).
//
// A group is read from memory once; later passes find it in cache. Every pass prefetches the next group, so that memory
// is not idle during the later passes. A CPU drops prefetches that arrive faster than memory answers (Zen 4 drops half
// if a pass over cached data prefetches every line), so each line is prefetched twice, in two passes.
//
// Sums use a fixed number of accumulators, which hides latency and makes results independent of the number of threads.
// Large outputs use streaming stores. Weight gradients are summed over blocks of kBlock rows in registers, then per
// range of rows, then over the ranges in order.
//
// The loop bodies are always_inline; otherwise the compiler emits a call per vector.
#if defined(LAMINA_OPS_NORM_NORM_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LAMINA_OPS_NORM_NORM_ROWS_INL_H_
#undef LAMINA_OPS_NORM_NORM_ROWS_INL_H_
#else
#define LAMINA_OPS_NORM_NORM_ROWS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>

#include "lamina/base/simd_stream-inl.h"
#include "lamina/base/simd_sum-inl.h"
#include "lamina/tensor/tensor.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {
using namespace lamina::HWY_NAMESPACE;  // NOLINT: SIMD helpers of this target

template <class T>
struct NormForwardRows {
  using A = Accumulate<T>;
  const T* x;
  const T* residual;  ///< optional
  const A* scale;     ///< [width], optional
  const A* bias;      ///< [width], optional
  T* h;               ///< x + residual, optional
  T* y;
  A* mean;  ///< [groups], if kCentred
  A* r;     ///< [groups]
  int64_t groups, group, width;
  double eps;
};

template <class T>
struct NormBackwardRows {
  using A = Accumulate<T>;
  const T* x;
  const T* dy;
  const T* dh;     ///< optional
  const A* scale;  ///< optional
  const A* mean;
  const A* r;
  T* dx;
  A* dscale;  ///< [ranges, width] with row stride `stride`, optional
  A* dbias;   ///< like dscale
  int64_t rows, group, width;
  int64_t grain;   ///< rows per range
  int64_t stride;  ///< see PartialSums
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

/// How memory is accessed. If the tensors exceed the caches, outputs use streaming stores and inputs are prefetched
/// `ahead` elements early (0: no prefetch).
struct MemoryAccess {
  bool streaming;
  int64_t ahead;
};

/// The access pattern for inputs and an output of `total` elements, processed in pieces of `span` elements. The output
/// has rows of `row` elements.
template <class T>
MemoryAccess plan_traffic(const T* to, int64_t total, int64_t row, int64_t span) {
  constexpr int64_t kLeast = 4096;  // elements; a shorter distance is too late to hide memory latency
  // Two inputs and an output exceed the caches at half the size at which an output alone does.
  const bool large = exceeds_last_level_cache(2 * total * static_cast<int64_t>(sizeof(T)));
  return {should_stream(to, total, row), large ? std::max(span, kLeast) : 0};
}

/// Prefetches into L2 the cache line `ahead` elements after p. Prefetching past the end is harmless.
template <class T>
HWY_INLINE void prefetch_ahead(const T* p, int64_t ahead) {
  if (ahead != 0) __builtin_prefetch(p + ahead, 0, 2);
}

/// Returns elements i … of x or, if there is a residual, of h = x + residual, which it stores first.
template <class D, class T>
HWY_INLINE hn::Vec<D> load_sum(D d, const T* x, const T* residual, T* h, int64_t i, size_t count) {
  const auto v = load_n(d, x + i, count);
  if (residual == nullptr) return v;
  store_n(d, hn::Add(v, load_n(d, residual + i, count)), h + i, count);
  return load_n(d, h + i, count);  // rounded to T, because later layers see h in T
}

/// Computes mean and r = 1/σ of one group. The variance is computed around the mean in a second pass, which avoids the
/// cancellation of Σx² − n·μ². Lanes after the end of a group are masked.
template <bool kCentred, class T>
HWY_INLINE void statistics(const NormForwardRows<T>& args, int64_t g, int64_t ahead) {
  using A = Accumulate<T>;
  const ComputeTag<T> d;
  const int64_t at = g * args.group;
  const int64_t n = args.group;
  const T* x = args.x + at;
  const T* residual = at_or_null(args.residual, at);
  T* h = at_or_null(args.h, at);
  const auto prefetch_at = [&](int64_t i) HWY_ATTR __attribute__((always_inline)) {
    prefetch_ahead(x + i, ahead);
    if (residual != nullptr) prefetch_ahead(residual + i, ahead);
  };
  A squares = 0;
  if constexpr (kCentred) {
    const A sum = sum_vectors(
        d, n, [&](int64_t i, size_t count, int /*k*/) HWY_ATTR __attribute__((always_inline)) {
          return load_sum(d, x, residual, h, i, count);
        });
    args.mean[g] = sum / static_cast<A>(n);
    const auto mean = hn::Set(d, args.mean[g]);
    const T* from = h != nullptr ? h : x;
    squares = sum_vectors(
        d, n, [&](int64_t i, size_t count, int /*k*/) HWY_ATTR __attribute__((always_inline)) {
          prefetch_at(i);
          auto v = hn::Sub(load_n(d, from + i, count), mean);
          if (count != hn::Lanes(d)) v = hn::IfThenElseZero(hn::FirstN(d, count), v);
          return hn::Mul(v, v);
        });
  } else {
    squares = sum_vectors(
        d, n, [&](int64_t i, size_t count, int /*k*/) HWY_ATTR __attribute__((always_inline)) {
          prefetch_at(i);
          const auto v = load_sum(d, x, residual, h, i, count);
          return hn::Mul(v, v);
        });
  }
  args.r[g] = A{1} / std::sqrt(squares / static_cast<A>(n) + static_cast<A>(args.eps));
}

/// Computes y of one group from its statistics. RMS norm has only one pass before this one. That pass is memory-bound,
/// so many of its prefetches are dropped; this pass prefetches the lines again.
template <bool kCentred, class T>
HWY_INLINE void normalize(const NormForwardRows<T>& args, int64_t g, const MemoryAccess& access) {
  const ComputeTag<T> d;
  const int64_t at = g * args.group;
  const T* x = args.x + at;
  const T* residual = at_or_null(args.residual, at);
  const T* from = (args.h != nullptr ? args.h : args.x) + at;
  T* y = args.y + at;
  const auto* scale = at_or_null(args.scale, at % args.width);
  const auto* bias = at_or_null(args.bias, at % args.width);
  const auto r = hn::Set(d, args.r[g]);
  const auto mean = kCentred ? hn::Set(d, args.mean[g]) : hn::Zero(d);
  const bool streaming = access.streaming;
  const int64_t ahead = access.ahead;
  for_vectors(
      d, args.group, [&](int64_t i, size_t count) HWY_ATTR __attribute__((always_inline)) {
        if constexpr (!kCentred) prefetch_ahead(x + i, ahead);
        prefetch_ahead(x + i, 2 * ahead);
        if (residual != nullptr) prefetch_ahead(residual + i, 2 * ahead);
        auto v = load_n(d, from + i, count);
        if constexpr (kCentred) v = hn::Sub(v, mean);
        v = hn::Mul(v, r);
        if (scale != nullptr) v = hn::Mul(v, load_n(d, scale + i, count));
        if (bias != nullptr) v = hn::Add(v, load_n(d, bias + i, count));
        put_n(d, v, y + i, count, streaming);
      });
}

template <bool kCentred, class T>
void norm_forward_rows(const Threads& threads, const NormForwardRows<T>& args) {
  const MemoryAccess access = plan_traffic(args.y, args.groups * args.group, args.group, args.group);
  // At most 256 ranges. Lines prefetched past the end of a range are mostly used by another core, so longer ranges
  // waste less.
  const int64_t grain = std::max(rows_per_range(args.group), (args.groups + 255) / 256);
  threads.ranges(args.groups, grain, [&](int64_t begin, int64_t end) HWY_ATTR {
    for (int64_t g = begin; g < end; ++g) {
      statistics<kCentred>(args, g, access.ahead);
      normalize<kCentred>(args, g, access);
    }
    if (access.streaming) hwy::FlushStream();
  });
}

/// Rows whose weight gradients are summed in registers before they are added to memory. With more rows, too little
/// cache is left for prefetched lines.
inline constexpr int kBlock = 2;

/// Terms of dx = r·(g − mean(g) − x̂·mean(g·x̂)) with g = dy·scale and x̂ = (x − μ)·r; RMS norm has μ = 0 and no
/// mean(g). With c = mean(g·x̂)·r this is r·(g − mean(g) − c·(x − μ)). So a group needs two sums: Σ g and Σ g·(x − μ).
template <class V>
struct RowGradientTerms {
  V r, mean, c, mean_g;
};

/// Computes the RowGradientTerms of `kRows` rows at one group's columns. The rows are processed together because they
/// share the scale.
template <bool kCentred, int kRows, class T, class V = hn::Vec<ComputeTag<T>>>
HWY_INLINE void reduce_gradient_terms(const NormBackwardRows<T>& args, int64_t row, int64_t in_row, int64_t ahead,
                                      RowGradientTerms<V>* HWY_RESTRICT terms) {
  using A = Accumulate<T>;
  const ComputeTag<T> d;
  const int64_t n = args.group;
  const int64_t width = args.width;
  const int64_t first = row * width + in_row;
  const T* x = args.x + first;
  const T* dy = args.dy + first;
  const A* scale = at_or_null(args.scale, in_row);
  V mean[kRows];
  V dot[kRows][2];
  V sum[kRows][2];
  for (int k = 0; k < kRows; ++k) {
    mean[k] = kCentred ? hn::Set(d, args.mean[(first + k * width) / n]) : hn::Zero(d);
    dot[k][0] = dot[k][1] = sum[k][0] = sum[k][1] = hn::Zero(d);
  }
  const auto add = [&](int64_t i, size_t count, int half) HWY_ATTR __attribute__((always_inline)) {
    const auto scale_v = scale != nullptr ? load_n(d, scale + i, count) : hn::Set(d, A{1});
    for (int k = 0; k < kRows; ++k) {
      const int64_t at = k * width + i;
      prefetch_ahead(x + at, ahead);
      prefetch_ahead(dy + at, ahead);
      const auto grad = hn::Mul(load_n(d, dy + at, count), scale_v);
      auto v = load_n(d, x + at, count);
      if constexpr (kCentred) {
        v = hn::Sub(v, mean[k]);
        sum[k][half] = hn::Add(sum[k][half], grad);
      }
      dot[k][half] = hn::MulAdd(grad, v, dot[k][half]);
    }
  };
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    add(i, hn::Lanes(d), 0);
    add(i + lanes, hn::Lanes(d), 1);
  }
  for (; i < n; i += lanes) add(i, static_cast<size_t>(std::min(lanes, n - i)), 0);
  for (int k = 0; k < kRows; ++k) {
    // If a group has one element, x = μ and the gradient is exactly zero; r = 0 keeps rounding errors out.
    const A r = kCentred && n == 1 ? A{0} : args.r[(first + k * width) / n];
    const A c = hn::GetLane(hn::SumOfLanes(d, hn::Add(dot[k][0], dot[k][1]))) * r * r / static_cast<A>(n);
    const A mean_g = hn::GetLane(hn::SumOfLanes(d, hn::Add(sum[k][0], sum[k][1]))) / static_cast<A>(n);
    terms[k] = {hn::Set(d, r), mean[k], hn::Set(d, c), hn::Set(d, mean_g)};
  }
}

/// dx of `kRows` rows at one group's columns, and their contribution to the weight gradients.
template <bool kCentred, int kRows, class T>
HWY_INLINE void backward_block(const NormBackwardRows<T>& args, int64_t row, int64_t in_row, int64_t range,
                               const MemoryAccess& access) {
  const ComputeTag<T> d;
  using V = hn::Vec<ComputeTag<T>>;
  RowGradientTerms<V> terms[kRows];
  reduce_gradient_terms<kCentred, kRows>(args, row, in_row, access.ahead, terms);
  const int64_t width = args.width;
  const int64_t first = row * width + in_row;
  const T* x = args.x + first;
  const T* dy = args.dy + first;
  const T* dh = at_or_null(args.dh, first);
  T* dx = args.dx + first;
  const auto* scale = at_or_null(args.scale, in_row);
  auto* dscale = at_or_null(args.dscale, range * args.stride + in_row);
  auto* dbias = at_or_null(args.dbias, range * args.stride + in_row);
  const bool streaming = access.streaming;
  const int64_t ahead = access.ahead;
  // Avoid 4K aliasing: rows may lie a multiple of 4096 bytes apart, and a load stalls on an older store whose low
  // address bits are equal. So all loads come before the stores.
  for_vectors(
      d, args.group, [&](int64_t i, size_t count) HWY_ATTR __attribute__((always_inline)) {
        V out[kRows];
        auto dscale_v = hn::Zero(d);
        auto dbias_v = hn::Zero(d);
        const auto scale_v = scale != nullptr ? load_n(d, scale + i, count) : hn::Set(d, Accumulate<T>{1});
        for (int k = 0; k < kRows; ++k) {
          const int64_t at = k * width + i;
          for (const int64_t early : {ahead, 2 * ahead}) {
            prefetch_ahead(x + at, early);
            prefetch_ahead(dy + at, early);
          }
          auto x_v = load_n(d, x + at, count);
          if constexpr (kCentred) x_v = hn::Sub(x_v, terms[k].mean);
          const auto dy_v = load_n(d, dy + at, count);
          dscale_v = hn::MulAdd(hn::Mul(dy_v, x_v), terms[k].r, dscale_v);
          if constexpr (kCentred) dbias_v = hn::Add(dbias_v, dy_v);
          auto v = hn::Mul(dy_v, scale_v);
          if constexpr (kCentred) v = hn::Sub(v, terms[k].mean_g);
          out[k] = hn::Mul(hn::NegMulAdd(x_v, terms[k].c, v), terms[k].r);
          if (dh != nullptr) out[k] = hn::Add(out[k], load_n(d, dh + at, count));
        }
        for (int k = 0; k < kRows; ++k) put_n(d, out[k], dx + k * width + i, count, streaming);
        if (dscale != nullptr) store_n(d, hn::Add(load_n(d, dscale + i, count), dscale_v), dscale + i, count);
        if (dbias != nullptr) store_n(d, hn::Add(load_n(d, dbias + i, count), dbias_v), dbias + i, count);
      });
}

template <bool kCentred, class T>
void norm_backward_rows(const Threads& threads, const NormBackwardRows<T>& args) {
  const MemoryAccess access = plan_traffic(args.dx, args.rows * args.width, args.group, kBlock * args.width);
  threads.ranges(args.rows, args.grain, [&](int64_t begin, int64_t end) HWY_ATTR {
    const int64_t range = begin / args.grain;
    if (args.dscale != nullptr) std::fill_n(args.dscale + range * args.stride, args.width, Accumulate<T>{0});
    if (args.dbias != nullptr) std::fill_n(args.dbias + range * args.stride, args.width, Accumulate<T>{0});
    int64_t row = begin;
    for (; row + kBlock <= end; row += kBlock) {
      for (int64_t in_row = 0; in_row < args.width; in_row += args.group) {
        backward_block<kCentred, kBlock>(args, row, in_row, range, access);
      }
    }
    for (; row < end; ++row) {
      for (int64_t in_row = 0; in_row < args.width; in_row += args.group) {
        backward_block<kCentred, 1>(args, row, in_row, range, access);
      }
    }
    if (access.streaming) hwy::FlushStream();
  });
}

/// Rows per range in backward. There are at most 64 ranges, and so at most 64 partial sums of the weight gradients.
inline int64_t backward_grain(int64_t rows, int64_t width) {
  const int64_t grain = std::max(rows_per_range(width), (rows + 63) / 64);
  return (grain + kBlock - 1) / kBlock * kBlock;
}

/// Partial sums of a weight gradient: one row per range of rows. Addresses a multiple of 4096 bytes apart map to the
/// same L1 set, which rows of x and dy already fill, so the sums start `page_offset` bytes after x, modulo 4096.
template <class A>
class PartialSums {
 public:
  static constexpr int64_t kPage = 4096 / static_cast<int64_t>(sizeof(A));

  /// If `total` is undefined, the gradient is not needed and this is empty.
  template <class Rows>
  PartialSums(const Tensor& total, const Rows& rows, size_t page_offset)
      : total_(total), ranges_((rows.rows + rows.grain - 1) / rows.grain), stride_(stride(rows.width)) {
    if (!total.defined()) return;
    room_ = Tensor::empty({ranges_ * stride_ + kPage}, total.dtype(), total.device());
    const size_t shift =
        reinterpret_cast<uintptr_t>(rows.x) + page_offset - reinterpret_cast<uintptr_t>(room_.data<A>());
    first_ = room_.data<A>() + shift % 4096 / 64 * (64 / sizeof(A));
  }

  static int64_t stride(int64_t width) { return (width + kPage - 1) / kPage * kPage; }
  A* first() const { return first_; }

  /// total = Σ over the ranges, in order. Most partial sums are in the caches of other cores, so a task takes only few
  /// columns.
  void add_up(const Threads& threads) const {
    if (first_ == nullptr) return;
    A* total = total_.template data<A>();
    threads.ranges(total_.numel(), 64, [&](int64_t begin, int64_t end) HWY_ATTR {
      std::fill(total + begin, total + end, A{0});
      for (int64_t k = 0; k < ranges_; ++k) {
        for (int64_t i = begin; i < end; ++i) total[i] += first_[k * stride_ + i];
      }
    });
  }

 private:
  Tensor total_;
  int64_t ranges_;
  int64_t stride_;
  Tensor room_;
  A* first_ = nullptr;
};

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
