// First merges neighbouring dimensions along which both operands are contiguous, or both are broadcast: two equal
// shapes become one dimension, a vector added to rows becomes two. Along the innermost merged dimension an operand is
// then either contiguous or one repeated value.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/ops/elementwise/elementwise_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lamina/base/simd_stream-inl.h"
#include "lamina/ops/elementwise/broadcast.h"
#include "lamina/ops/elementwise/elementwise_kernel.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {
using namespace lamina::HWY_NAMESPACE;  // NOLINT: SIMD helpers of this target

constexpr int64_t kRun = 65536;

/// Merged extents of `out`, and the strides of a and b (0 if broadcast).
struct Plan {
  Shape shape, a, b;
};

Plan make_plan(const Combination& args) {
  const Shape& shape = args.out.shape();
  const Shape a = broadcast_strides(args.a, shape);
  const Shape b = args.b.defined() ? broadcast_strides(args.b, shape) : a;
  Plan plan;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const int64_t extent = shape[axis];
    if (extent == 1) continue;
    const int last = plan.shape.rank() - 1;
    if (last >= 0 && plan.a[last] == a[axis] * extent && plan.b[last] == b[axis] * extent) {
      plan.shape[last] *= extent;
      plan.a[last] = a[axis];
      plan.b[last] = b[axis];
    } else {
      plan.shape.push_back(extent);
      plan.a.push_back(a[axis]);
      plan.b.push_back(b[axis]);
    }
  }
  if (plan.shape.rank() == 0) plan = {{1}, {1}, {1}};
  return plan;
}

template <class T>
struct Operand {
  const T* first;
  bool repeated;
  template <class D>
  HWY_INLINE hn::Vec<D> at(D d, int64_t i, size_t count) const {
    return repeated ? hn::Set(d, convert<hn::TFromD<D>>(*first)) : load_n(d, first + i, count);
  }
};

template <Combine kKind, class T>
HWY_INLINE void combine_run(Operand<T> a, Operand<T> b, double alpha_in, T* out, int64_t n, bool streaming) {
  const ComputeTag<T> d;
  const auto alpha = hn::Set(d, static_cast<Accumulate<T>>(alpha_in));
  for_vectors(d, n, [&](int64_t i, size_t count) HWY_ATTR {
    const auto first = a.at(d, i, count);
    hn::Vec<ComputeTag<T>> v;
    if constexpr (kKind == Combine::sum) {
      v = hn::MulAdd(alpha, b.at(d, i, count), first);
    } else if constexpr (kKind == Combine::product) {
      v = hn::Mul(hn::Mul(alpha, first), b.at(d, i, count));
    } else {
      v = hn::Mul(alpha, first);
    }
    put_n(d, v, out + i, count, streaming);
  });
}

template <Combine kKind, class T>
void combine_as(const Combination& args) {
  const Plan plan = make_plan(args);
  const int inner = plan.shape.rank() - 1;
  const int64_t length = plan.shape[inner];
  const int64_t pieces = (length + kRun - 1) / kRun;
  const int64_t runs = plan.shape.numel() / length * pieces;
  const T* a = args.a.data<T>();
  const T* b = args.b.defined() ? args.b.data<T>() : a;
  T* out = args.out.data<T>();
  const bool streaming = should_stream(out, args.out.numel(), length);
  args.out.device().threads().ranges(runs, rows_per_range(length, kRun), [&](int64_t begin, int64_t end) HWY_ATTR {
    for (int64_t run = begin; run < end; ++run) {
      const int64_t start = run % pieces * kRun;
      int64_t rest = run / pieces;
      int64_t at_a = start * plan.a[inner];
      int64_t at_b = start * plan.b[inner];
      const int64_t at_out = rest * length + start;
      for (int axis = inner - 1; axis >= 0; --axis) {
        at_a += rest % plan.shape[axis] * plan.a[axis];
        at_b += rest % plan.shape[axis] * plan.b[axis];
        rest /= plan.shape[axis];
      }
      combine_run<kKind, T>({a + at_a, plan.a[inner] == 0}, {b + at_b, plan.b[inner] == 0}, args.alpha, out + at_out,
                            std::min(kRun, length - start), streaming);
    }
    if (streaming) hwy::FlushStream();
  });
}

void combine(const Combination& args) {
  if (args.out.numel() == 0) return;
  visit_floating(args.out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    switch (args.kind) {
      case Combine::sum: return combine_as<Combine::sum, T>(args);
      case Combine::product: return combine_as<Combine::product, T>(args);
      case Combine::first: return combine_as<Combine::first, T>(args);
    }
  });
}

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lamina::ops {
HWY_EXPORT(combine);
namespace cpu {
void combine(const Combination& args) { HWY_DYNAMIC_DISPATCH(combine)(args); }
}  // namespace cpu
}  // namespace lamina::ops
#endif
