// The coefficients of a position are arranged once, so that every head is computed as y = x·c + partner(x)·s. This form
// covers forward and backward, both pairings and both kinds of tables, and uses full vectors. Dimensions shorter than a
// vector use a narrower vector. A partial last vector is moved back so that it overlaps elements already done, which is
// cheaper than a masked one.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/ops/position/rotary_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <vector>

#include "lamina/base/simd-inl.h"
#include "lamina/base/simd_stream-inl.h"
#include "lamina/ops/position/rotary_kernel.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {
using namespace lamina::HWY_NAMESPACE;  // NOLINT: SIMD helpers of this target

/// Coefficients c and s of one position, [rotary_dim] each.
template <class A>
struct Coefficients {
  A* c;
  A* s;
};

/// Fills the coefficients for half_split pairing from a table row, which has one angle per pair (the same for both
/// halves) or one entry per element.
template <class A>
void lay_out_split(const A* cos, const A* sin, int64_t half, bool per_pair, bool transposed, Coefficients<A> to) {
  const hn::ScalableTag<A> d;
  const int64_t second = per_pair ? 0 : half;
  for_vectors(d, half, [&](int64_t i, size_t n) HWY_ATTR {
    const auto sin_first = load_n(d, sin + i, n);
    const auto sin_second = load_n(d, sin + second + i, n);
    store_n(d, load_n(d, cos + i, n), to.c + i, n);
    store_n(d, load_n(d, cos + second + i, n), to.c + half + i, n);
    store_n(d, transposed ? sin_second : hn::Neg(sin_first), to.s + i, n);
    store_n(d, transposed ? hn::Neg(sin_first) : sin_second, to.s + half + i, n);
  });
}

template <class A>
void lay_out_interleaved(const A* cos, const A* sin, int64_t half, bool per_pair, bool transposed, Coefficients<A> to) {
  const hn::ScalableTag<A> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= half; i += lanes) {
    auto cos_first = hn::LoadU(d, cos + i);
    auto sin_first = hn::LoadU(d, sin + i);
    auto cos_second = cos_first;
    auto sin_second = sin_first;
    if (!per_pair) {
      hn::LoadInterleaved2(d, cos + 2 * i, cos_first, cos_second);
      hn::LoadInterleaved2(d, sin + 2 * i, sin_first, sin_second);
    }
    hn::StoreInterleaved2(cos_first, cos_second, d, to.c + 2 * i);
    const auto minus = hn::Neg(sin_first);
    hn::StoreInterleaved2(transposed ? sin_second : minus, transposed ? minus : sin_second, d, to.s + 2 * i);
  }
  const int64_t step = per_pair ? 1 : 2;
  const int64_t second = per_pair ? 0 : 1;
  for (; i < half; ++i) {
    to.c[2 * i] = cos[i * step];
    to.c[2 * i + 1] = cos[i * step + second];
    to.s[2 * i] = transposed ? sin[i * step + second] : -sin[i * step];
    to.s[2 * i + 1] = transposed ? -sin[i * step] : sin[i * step + second];
  }
}

/// Half-split pairs: y[i] = x[i]·c[i] + x[i + half]·s[i] for i < half, and y[i + half] likewise.
template <class D, class T>
HWY_INLINE void rotate_split(D d, const T* x, Coefficients<hn::TFromD<D>> by, int64_t half, bool streaming, T* y) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  if constexpr (hn::MaxLanes(d) > 1) {
    if (half < lanes) {
      rotate_split(hn::Half<D>(), x, by, half, false, y);
      return;
    }
  }
  for (int64_t step = 0; step < half; step += lanes) {
    const int64_t i = std::min(step, half - lanes);
    const auto a = load(d, x + i);
    const auto b = load(d, x + half + i);
    const auto first = hn::MulAdd(a, hn::LoadU(d, by.c + i), hn::Mul(b, hn::LoadU(d, by.s + i)));
    const auto second = hn::MulAdd(b, hn::LoadU(d, by.c + half + i), hn::Mul(a, hn::LoadU(d, by.s + half + i)));
    put_n(d, first, y + i, hn::Lanes(d), streaming);
    put_n(d, second, y + half + i, hn::Lanes(d), streaming);
  }
}

/// Interleaved pairs: y[i] = x[i]·c[i] + x[i ^ 1]·s[i] for i < n.
template <class D, class T>
HWY_INLINE void rotate_interleaved(D d, const T* x, Coefficients<hn::TFromD<D>> by, int64_t n, bool streaming, T* y) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  if constexpr (hn::MaxLanes(d) > 2) {
    if (n < lanes) {
      rotate_interleaved(hn::Half<D>(), x, by, n, false, y);
      return;
    }
  }
  for (int64_t step = 0; step < n; step += lanes) {
    const int64_t i = std::min(step, n - lanes);
    const auto v = load(d, x + i);
    const auto partner = hn::Reverse2(d, v);
    put_n(d, hn::MulAdd(v, hn::LoadU(d, by.c + i), hn::Mul(partner, hn::LoadU(d, by.s + i))), y + i, hn::Lanes(d),
          streaming);
  }
}

template <class T>
void rotate_all(const RotaryArgs& args) {
  using A = Accumulate<T>;
  if (args.y.numel() == 0) return;
  const ComputeTag<T> d;
  const int64_t seq = args.x.dim(1);
  const int64_t heads = args.x.dim(2);
  const int64_t head_dim = args.x.dim(3);
  const int64_t n = args.rotary_dim;
  const int64_t row = args.cos.dim(1);
  const bool split = args.pairing == RotaryPairing::half_split;
  const bool per_batch = args.positions.defined() && args.positions.rank() == 2;
  const int64_t* positions = args.positions.defined() ? args.positions.data<int64_t>() : nullptr;
  const A* cos = args.cos.data<A>();
  const A* sin = args.sin.data<A>();
  const T* x = args.x.data<T>();
  T* y = args.y.data<T>();
  const Shape& strides = args.x.strides();
  const Shape& y_strides = args.y.strides();
  const bool in_place = x == y;
  const int64_t vector = static_cast<int64_t>(hn::Lanes(d)) * (split ? 2 : 1);
  const bool streaming = !in_place && n % vector == 0 && should_stream(y, args.y.numel(), head_dim);
  const auto rotate_tokens = [&](int64_t begin, int64_t end) HWY_ATTR {
    std::vector<A> room(static_cast<size_t>(2 * n));
    const Coefficients<A> by{room.data(), room.data() + n};
    // Old values of a head, for rotation in place: the last vector may overlap the one before.
    std::vector<T> before(static_cast<size_t>(in_place ? n : 0));
    for (int64_t token = begin; token < end; ++token) {
      const int64_t place = per_batch ? token : token % seq;
      const int64_t at = (positions != nullptr ? positions[place] : args.offset + place) * row;
      const auto lay_out = split ? lay_out_split<A> : lay_out_interleaved<A>;
      if (n > 0) lay_out(cos + at, sin + at, n / 2, row < n, args.transposed, by);
      const T* from = x + token / seq * strides[0] + token % seq * strides[1];
      T* to = y + token / seq * y_strides[0] + token % seq * y_strides[1];
      for (int64_t head = 0; head < heads; ++head, from += strides[2], to += y_strides[2]) {
        if (in_place) std::copy(from, from + n, before.data());
        const T* values = in_place ? before.data() : from;
        if (split) {
          rotate_split(d, values, by, n / 2, streaming, to);
        } else {
          rotate_interleaved(d, values, by, n, streaming, to);
        }
        if (!in_place) std::copy(from + n, from + head_dim, to + n);
      }
    }
    if (streaming) hwy::FlushStream();
  };
  args.y.device().threads().ranges(args.x.dim(0) * seq, rows_per_range(heads * head_dim), rotate_tokens);
}

void rotary(const RotaryArgs& args) {
  visit_floating(args.x.dtype(), [&](auto tag) { rotate_all<typename decltype(tag)::type>(args); });
}

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lamina::ops {
namespace {
HWY_EXPORT(rotary);

void check_positions(const RotaryArgs& args) {
  if (!args.positions.defined()) return;
  const int64_t* positions = args.positions.data<int64_t>();
  const int64_t rows = args.cos.dim(0);
  for (int64_t i = 0; i < args.positions.numel(); ++i) {
    LAMINA_CHECK(positions[i] >= 0 && positions[i] < rows, "rotary: position ", positions[i], " (element ", i,
                 " of positions ", args.positions.shape(), ") is outside the tables of ", rows,
                 " positions; make longer tables with rotary_tables");
  }
}

}  // namespace

namespace cpu {
void rotary(const RotaryArgs& args) {
  check_positions(args);
  HWY_DYNAMIC_DISPATCH(rotary)(args);
}
}  // namespace cpu
}  // namespace lamina::ops
#endif
