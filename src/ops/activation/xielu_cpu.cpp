// One pass over the elements. Backward also sums the gradients of the two learned scalars, in chunks of a fixed size,
// so that the sums do not depend on the number of threads.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/ops/activation/xielu_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>

#include "lamina/base/simd_math-inl.h"
#include "lamina/ops/activation/xielu_kernel.h"
#include "lamina/ops/elementwise/elements-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {

/// ln(1 + exp(x)), without overflow.
inline double xielu_softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }

struct XieluNumbers {
  double p, n, beta, eps;

  template <class Args>
  explicit XieluNumbers(const Args& args)
      : p(xielu_softplus(args.alpha_p.template to_vector<double>()[0])),
        n(args.options.beta + xielu_softplus(args.alpha_n.template to_vector<double>()[0])),
        beta(args.options.beta),
        eps(args.options.eps) {}
};

/// expm1(min(x, eps)) − x. Only valid for x <= 0; callers mask the other lanes.
template <class D>
HWY_INLINE hn::Vec<D> xielu_bend(D d, hn::Vec<D> x, double eps) {
  return hn::Sub(expm1_of_negative(d, hn::Min(x, constant(d, eps))), x);
}

void xielu_forward(const XieluForward& args) {
  const XieluNumbers numbers(args);
  map_elements(args.x, args.y, [=](auto d, auto x) HWY_ATTR {
    const auto above = hn::Mul(constant(d, numbers.p), hn::Mul(x, x));
    const auto below = hn::Mul(constant(d, numbers.n), xielu_bend(d, x, numbers.eps));
    const auto curve = hn::IfThenElse(hn::Gt(x, hn::Zero(d)), above, below);
    return hn::MulAdd(constant(d, numbers.beta), x, curve);
  });
}

template <class T>
void xielu_backward_of(const XieluBackward& args) {
  using A = Accumulate<T>;
  const XieluNumbers numbers(args);
  const T* x = args.x.data<T>();
  const T* dy = args.dy.data<T>();
  T* dx = args.dx.data<T>();
  A* partial = args.partial.data<A>();
  args.x.device().threads().ranges(args.x.numel(), kXieluChunk, [&](int64_t begin, int64_t end) HWY_ATTR {
    const ComputeTag<T> d;
    auto sum_p = hn::Zero(d);
    auto sum_n = hn::Zero(d);
    for_vectors(d, end - begin, [&](int64_t at, size_t count) HWY_ATTR {
      const int64_t i = begin + at;
      const auto v = load_n(d, x + i, count);
      const auto g = hn::IfThenElseZero(hn::FirstN(d, count), load_n(d, dy + i, count));
      const auto positive = hn::Gt(v, hn::Zero(d));
      const auto bend = xielu_bend(d, v, numbers.eps);
      // From x = eps on, min(x, eps) is constant, so the derivative of expm1(min(x, eps)) is 0.
      const auto below_eps = hn::Lt(v, constant(d, numbers.eps));
      const auto slope_n = hn::IfThenElse(below_eps, hn::Add(bend, v), constant(d, -1.0));
      const auto above = hn::Mul(constant(d, 2 * numbers.p), v);
      const auto below = hn::Mul(constant(d, numbers.n), slope_n);
      const auto slope = hn::Add(hn::IfThenElse(positive, above, below), constant(d, numbers.beta));
      store_n(d, hn::Mul(g, slope), dx + i, count);
      sum_p = hn::Add(sum_p, hn::IfThenElseZero(positive, hn::Mul(g, hn::Mul(v, v))));
      sum_n = hn::Add(sum_n, hn::IfThenZeroElse(positive, hn::Mul(g, bend)));
    });
    partial[begin / kXieluChunk * 2] = hn::GetLane(hn::SumOfLanes(d, sum_p));
    partial[begin / kXieluChunk * 2 + 1] = hn::GetLane(hn::SumOfLanes(d, sum_n));
  });
}

void xielu_backward(const XieluBackward& args) {
  visit_floating(args.x.dtype(), [&](auto tag) { xielu_backward_of<typename decltype(tag)::type>(args); });
}

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lamina::ops {
HWY_EXPORT(xielu_forward);
HWY_EXPORT(xielu_backward);

namespace cpu {
void xielu_forward(const XieluForward& args) { HWY_DYNAMIC_DISPATCH(xielu_forward)(args); }
void xielu_backward(const XieluBackward& args) { HWY_DYNAMIC_DISPATCH(xielu_backward)(args); }
}  // namespace cpu
}  // namespace lamina::ops
#endif
