// One thread normalises a range of rows. A row is read once from memory: the second pass, which scales it, finds it in
// the first-level cache. dweight is summed per range in f32 and the ranges are added in order, so that the bits do not
// depend on the number of threads.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/ops/norm/rms_norm_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>
#include <vector>

#include "lamina/base/simd-inl.h"
#include "lamina/ops/norm/rms_norm.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {
using namespace lamina::HWY_NAMESPACE;  // NOLINT: the vector helpers of this target

/// Σ x² over n elements, with h = x + residual stored first when a residual is given.
template <class T>
Accumulate<T> sum_of_squares(const T* x, const T* residual, T* h, int64_t n) {
  const ComputeTag<T> d;
  auto sum = hn::Zero(d);
  for_vectors(d, n, [&](int64_t i, size_t count) HWY_ATTR {
    auto v = load_n(d, x + i, count);
    if (residual != nullptr) {
      store_n(d, hn::Add(v, load_n(d, residual + i, count)), h + i, count);
      v = load_n(d, h + i, count);  // what later layers see, rounded to T
    }
    sum = hn::MulAdd(v, v, sum);
  });
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

template <class T>
void forward(const RmsNormForward& args) {
  using A = Accumulate<T>;
  const int64_t width = args.x.dim(-1);
  const int64_t group = args.group_size;
  const T* x = args.x.data<T>();
  const T* residual = args.residual.defined() ? args.residual.data<T>() : nullptr;
  T* h = args.h.defined() ? args.h.data<T>() : nullptr;
  const A* scale = args.scale.defined() ? args.scale.data<A>() : nullptr;
  T* y = args.y.data<T>();
  A* r = args.r.data<A>();
  const int64_t groups = args.r.numel();
  args.x.device().threads().ranges(groups, rows_per_range(group), [&](int64_t begin, int64_t end) HWY_ATTR {
    const ComputeTag<T> d;
    for (int64_t g = begin; g < end; ++g) {
      const int64_t at = g * group;
      const A squares = sum_of_squares<T>(x + at, residual != nullptr ? residual + at : nullptr,
                                          h != nullptr ? h + at : nullptr, group);
      const A inverse = A{1} / std::sqrt(squares / static_cast<A>(group) + static_cast<A>(args.eps));
      r[g] = inverse;
      const T* from = h != nullptr ? h + at : x + at;
      const A* gamma = scale != nullptr ? scale + at % width : nullptr;
      const auto factor = hn::Set(d, inverse);
      for_vectors(d, group, [&](int64_t i, size_t count) HWY_ATTR {
        auto v = hn::Mul(load_n(d, from + i, count), factor);
        if (gamma != nullptr) v = hn::Mul(v, load_n(d, gamma + i, count));
        store_n(d, v, y + at + i, count);
      });
    }
  });
}

/// dx of one group; adds this group's share to dscale where wanted.
template <class T>
void backward_group(const T* x, const T* dy, const T* dh, const Accumulate<T>* gamma, Accumulate<T> inverse, int64_t n,
                    T* dx, Accumulate<T>* dscale) {
  using A = Accumulate<T>;
  const ComputeTag<T> d;
  auto dot = hn::Zero(d);
  const auto factor = hn::Set(d, inverse);
  for_vectors(d, n, [&](int64_t i, size_t count) HWY_ATTR {
    const auto xv = load_n(d, x + i, count);
    const auto dyv = load_n(d, dy + i, count);
    if (dscale != nullptr) {
      store_n(d, hn::MulAdd(hn::Mul(dyv, xv), factor, load_n(d, dscale + i, count)), dscale + i, count);
    }
    const auto g = gamma != nullptr ? hn::Mul(dyv, load_n(d, gamma + i, count)) : dyv;
    dot = hn::MulAdd(g, xv, dot);
  });
  const A total = hn::GetLane(hn::SumOfLanes(d, dot));
  const auto pull = hn::Set(d, -total * inverse * inverse * inverse / static_cast<A>(n));
  for_vectors(d, n, [&](int64_t i, size_t count) HWY_ATTR {
    auto g = load_n(d, dy + i, count);
    if (gamma != nullptr) g = hn::Mul(g, load_n(d, gamma + i, count));
    auto v = hn::MulAdd(g, factor, hn::Mul(load_n(d, x + i, count), pull));
    if (dh != nullptr) v = hn::Add(v, load_n(d, dh + i, count));
    store_n(d, v, dx + i, count);
  });
}

template <class T>
void backward(const RmsNormBackward& args) {
  using A = Accumulate<T>;
  const int64_t width = args.x.dim(-1);
  const int64_t group = args.group_size;
  const int64_t per_row = width == 0 ? 0 : width / group;
  const int64_t rows = width == 0 ? 0 : args.x.numel() / width;
  const T* x = args.x.data<T>();
  const T* dy = args.dy.data<T>();
  const T* dh = args.dh.defined() ? args.dh.data<T>() : nullptr;
  const A* scale = args.scale.defined() ? args.scale.data<A>() : nullptr;
  const A* r = args.r.data<A>();
  T* dx = args.dx.data<T>();
  const bool weight_grad = args.dweight.defined();
  // At most 64 partial sums of dweight, whatever the batch.
  const int64_t grain = std::max(rows_per_range(width), (rows + 63) / 64);
  const int64_t ranges = rows == 0 ? 0 : (rows + grain - 1) / grain;
  std::vector<A> partial(weight_grad ? static_cast<size_t>(ranges * width) : 0, A{0});
  args.x.device().threads().ranges(rows, grain, [&](int64_t begin, int64_t end) HWY_ATTR {
    A* dscale = weight_grad ? partial.data() + begin / grain * width : nullptr;
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t g = 0; g < per_row; ++g) {
        const int64_t at = row * width + g * group;
        backward_group<T>(x + at, dy + at, dh != nullptr ? dh + at : nullptr,
                          scale != nullptr ? scale + g * group : nullptr, r[row * per_row + g], group, dx + at,
                          dscale != nullptr ? dscale + g * group : nullptr);
      }
    }
  });
  if (!weight_grad) return;
  A* dweight = args.dweight.data<A>();
  std::fill(dweight, dweight + width, A{0});
  for (int64_t range = 0; range < ranges; ++range) {
    for (int64_t i = 0; i < width; ++i) dweight[i] += partial[static_cast<size_t>(range * width + i)];
  }
}

void rms_norm_forward(const RmsNormForward& args) {
  visit_floating(args.x.dtype(), [&](auto tag) { forward<typename decltype(tag)::type>(args); });
}
void rms_norm_backward(const RmsNormBackward& args) {
  visit_floating(args.x.dtype(), [&](auto tag) { backward<typename decltype(tag)::type>(args); });
}

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lamina::ops {
HWY_EXPORT(rms_norm_forward);
HWY_EXPORT(rms_norm_backward);

namespace cpu {
void rms_norm_forward(const RmsNormForward& args) { HWY_DYNAMIC_DISPATCH(rms_norm_forward)(args); }
void rms_norm_backward(const RmsNormBackward& args) { HWY_DYNAMIC_DISPATCH(rms_norm_backward)(args); }
}  // namespace cpu
}  // namespace lamina::ops
#endif
