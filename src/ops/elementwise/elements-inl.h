// Loops over the elements of contiguous tensors with SIMD, on all threads. Start here to write an element-wise CPU
// kernel. Loop bodies are always_inline; otherwise the compiler emits a function call per vector.
#if defined(LAMINA_OPS_ELEMENTWISE_ELEMENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LAMINA_OPS_ELEMENTWISE_ELEMENTS_INL_H_
#undef LAMINA_OPS_ELEMENTWISE_ELEMENTS_INL_H_
#else
#define LAMINA_OPS_ELEMENTWISE_ELEMENTS_INL_H_
#endif

#include <hwy/highway.h>

#include "lamina/base/simd_stream-inl.h"
#include "lamina/base/threads.h"
#include "lamina/tensor/tensor.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {
using namespace lamina::HWY_NAMESPACE;  // NOLINT: SIMD helpers of this target

/// Elements per task: a multiple of every vector length and of the four words of one Philox call.
inline constexpr int64_t kElementGrain = 16384;

/// to[i …] = body(i, count) for every vector of [0, n). body loads `count` elements from i on with load_n() and returns
/// a vector.
template <class T, class F>
void write_elements(const Threads& threads, T* to, int64_t n, const F& body) {
  const bool streaming = should_stream(to, n, kElementGrain);
  threads.ranges(n, kElementGrain, [&](int64_t begin, int64_t end) HWY_ATTR {
    const ComputeTag<T> d;
    for_vectors(
        d, end - begin, [&](int64_t i, size_t count) HWY_ATTR __attribute__((always_inline)) {
          put_n(d, body(begin + i, count), to + begin + i, count, streaming);
        });
    if (streaming) hwy::FlushStream();
  });
}

/// y[i] = value(d, x[i]) for contiguous tensors of one floating type; value gets and returns one vector with tag d.
template <class F>
void map_elements(const Tensor& x_in, const Tensor& y, const F& value) {
  visit_floating(x_in.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* x = x_in.data<T>();
    write_elements(
        y.device().threads(), y.data<T>(),
        y.numel(), [&](int64_t i, size_t count) HWY_ATTR __attribute__((always_inline)) {
          const ComputeTag<T> d;
          return value(d, load_n(d, x + i, count));
        });
  });
}

/// dx[i] = slope(d, x[i], dy[i]) for contiguous tensors; slope gets and returns one vector with tag d.
template <class F>
void map_gradients(const Tensor& x_in, const Tensor& dy_in, const Tensor& dx, const F& slope) {
  visit_floating(x_in.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* x = x_in.data<T>();
    const T* dy = dy_in.data<T>();
    write_elements(
        dx.device().threads(), dx.data<T>(),
        dx.numel(), [&](int64_t i, size_t count) HWY_ATTR __attribute__((always_inline)) {
          const ComputeTag<T> d;
          return slope(d, load_n(d, x + i, count), load_n(d, dy + i, count));
        });
  });
}

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
