// Each thread takes a range of rows. A row is read from memory once, to find its maximum; the later passes find it in
// the CPU caches.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/ops/loss/softmax_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lamina/base/simd-inl.h"
#include "lamina/ops/loss/row_exp-inl.h"
#include "lamina/ops/loss/softmax_kernel.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {

template <class T>
void forward_row(const T* x, T* y, int64_t width, bool log) {
  using A = Accumulate<T>;
  const ComputeTag<T> d;
  const A most = row_max(x, width);
  const A sum = row_exp_sum(x, width, most);
  const auto shift = hn::Set(d, log ? most + std::log(sum) : most);
  const auto factor = hn::Set(d, A{1} / sum);
  for_vectors(d, width, [&](int64_t i, size_t count) HWY_ATTR {
    const auto value = hn::Sub(load_n(d, x + i, count), shift);
    store_n(d, log ? value : hn::Mul(exp_flushed(d, value), factor), y + i, count);
  });
}

template <class T>
void backward_row(const T* y, const T* dy, T* dx, int64_t width, bool log) {
  const ComputeTag<T> d;
  auto sum = hn::Zero(d);
  for_vectors(d, width, [&](int64_t i, size_t count) HWY_ATTR {
    const auto grad = load_n(d, dy + i, count);
    sum = log ? hn::Add(sum, grad) : hn::MulAdd(grad, load_n(d, y + i, count), sum);
  });
  const auto total = hn::SumOfLanes(d, sum);
  for_vectors(d, width, [&](int64_t i, size_t count) HWY_ATTR {
    const auto grad = load_n(d, dy + i, count);
    const auto value = load_n(d, y + i, count);
    store_n(d, log ? hn::NegMulAdd(exp_flushed(d, value), total, grad) : hn::Mul(value, hn::Sub(grad, total)), dx + i,
            count);
  });
}

template <class T>
void forward(const SoftmaxForward& args) {
  const int64_t width = args.x.dim(-1);
  if (width == 0) return;
  args.x.device().threads().ranges(args.x.shape().rows(), rows_per_range(width), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      forward_row(args.x.data<T>() + row * width, args.y.data<T>() + row * width, width, args.log);
    }
  });
}

template <class T>
void backward(const SoftmaxBackward& args) {
  const int64_t width = args.y.dim(-1);
  if (width == 0) return;
  args.y.device().threads().ranges(args.y.shape().rows(), rows_per_range(width), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t at = row * width;
      backward_row(args.y.data<T>() + at, args.dy.data<T>() + at, args.dx.data<T>() + at, width, args.log);
    }
  });
}

void softmax_forward(const SoftmaxForward& args) {
  visit_floating(args.x.dtype(), [&](auto tag) { forward<typename decltype(tag)::type>(args); });
}
void softmax_backward(const SoftmaxBackward& args) {
  visit_floating(args.y.dtype(), [&](auto tag) { backward<typename decltype(tag)::type>(args); });
}

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lamina::ops {
HWY_EXPORT(softmax_forward);
HWY_EXPORT(softmax_backward);

namespace cpu {
void softmax_forward(const SoftmaxForward& args) { HWY_DYNAMIC_DISPATCH(softmax_forward)(args); }
void softmax_backward(const SoftmaxBackward& args) { HWY_DYNAMIC_DISPATCH(softmax_backward)(args); }
}  // namespace cpu
}  // namespace lamina::ops
#endif
