// The coefficients of a position are laid out once so that every head is y = x·c + partner(x)·s, forward and backward,
// for both pairings and both kinds of tables; the heads then run through whole vectors. A last vector that does not fit
// is moved back over elements already done, which costs less than a short one.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/ops/position/rotary_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <vector>

#include "lamina/base/simd-inl.h"
#include "lamina/ops/position/rotary.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {
using namespace lamina::HWY_NAMESPACE;  // NOLINT: the vector helpers of this target

/// c and s of one position, [rotary_dim] each, from a row of the tables that holds an angle per pair or per element.
template <class A>
void lay_out(const A* cos, const A* sin, bool per_pair, const RotaryArgs& args, A* c, A* s) {
  const int64_t half = args.rotary_dim / 2;
  const bool split = args.pairing == RotaryPairing::half_split;
  const int64_t step = split ? 1 : 2;
  const int64_t distance = split ? half : 1;  // from a pair's first element to its second
  for (int64_t i = 0; i < half; ++i) {
    const int64_t first = i * step;
    const int64_t second = first + distance;
    const A sin_first = sin[per_pair ? i : first];
    const A sin_second = sin[per_pair ? i : second];
    c[first] = cos[per_pair ? i : first];
    c[second] = cos[per_pair ? i : second];
    s[first] = args.transposed ? sin_second : -sin_first;
    s[second] = args.transposed ? -sin_first : sin_second;
  }
}

/// Calls body(i, count) over [0, n) in whole vectors, the last one overlapping; one short vector where n is smaller.
template <class D, class F>
HWY_INLINE void for_overlapping(D d, int64_t n, const F& body) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  if (n < lanes) {
    if (n > 0) body(int64_t{0}, static_cast<size_t>(n));
    return;
  }
  for (int64_t i = 0; i < n; i += lanes) body(std::min(i, n - lanes), static_cast<size_t>(lanes));
}

template <class T>
HWY_INLINE void rotate_split(const T* x, const Accumulate<T>* c, const Accumulate<T>* s, int64_t half, T* y) {
  const ComputeTag<T> d;
  for_overlapping(d, half, [&](int64_t i, size_t count) HWY_ATTR {
    const auto a = load_n(d, x + i, count);
    const auto b = load_n(d, x + half + i, count);
    store_n(d, hn::MulAdd(a, load_n(d, c + i, count), hn::Mul(b, load_n(d, s + i, count))), y + i, count);
    store_n(d, hn::MulAdd(b, load_n(d, c + half + i, count), hn::Mul(a, load_n(d, s + half + i, count))), y + half + i,
            count);
  });
}

template <class T>
HWY_INLINE void rotate_interleaved(const T* x, const Accumulate<T>* c, const Accumulate<T>* s, int64_t n, T* y) {
  const ComputeTag<T> d;
  for_overlapping(d, n, [&](int64_t i, size_t count) HWY_ATTR {
    const auto v = load_n(d, x + i, count);
    const auto partner = hn::Reverse2(d, v);
    store_n(d, hn::MulAdd(v, load_n(d, c + i, count), hn::Mul(partner, load_n(d, s + i, count))), y + i, count);
  });
}

template <class T>
void rotate_all(const RotaryArgs& args) {
  using A = Accumulate<T>;
  const int64_t seq = args.x.dim(1);
  const int64_t heads = args.x.dim(2);
  const int64_t head_dim = args.x.dim(3);
  const int64_t n = args.rotary_dim;
  const int64_t row = args.cos.dim(1);
  const bool shared_positions = !args.positions.defined() || args.positions.rank() == 1;
  const int64_t* positions = args.positions.defined() ? args.positions.data<int64_t>() : nullptr;
  const A* cos = args.cos.data<A>();
  const A* sin = args.sin.data<A>();
  const T* x = args.x.data<T>();
  T* y = args.y.data<T>();
  if (args.y.numel() == 0) return;
  const Shape& strides = args.x.strides();
  const int64_t tokens = args.x.dim(0) * seq;
  args.y.device().threads().ranges(tokens, rows_per_range(heads * head_dim), [&](int64_t begin, int64_t end) HWY_ATTR {
    std::vector<A> coefficients(static_cast<size_t>(2 * n));
    A* c = coefficients.data();
    A* s = c + n;
    for (int64_t token = begin; token < end; ++token) {
      const int64_t place = shared_positions ? token % seq : token;
      const int64_t position = positions != nullptr ? positions[place] : args.offset + place;
      if (n > 0) lay_out(cos + position * row, sin + position * row, row < n, args, c, s);
      const T* from = x + token / seq * strides[0] + token % seq * strides[1];
      T* to = y + token * heads * head_dim;
      for (int64_t head = 0; head < heads; ++head, from += strides[2], to += head_dim) {
        if (args.pairing == RotaryPairing::half_split) {
          rotate_split<T>(from, c, s, n / 2, to);
        } else {
          rotate_interleaved<T>(from, c, s, n, to);
        }
        std::copy(from + n, from + head_dim, to + n);
      }
    }
  });
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
