// Walks the elements of dense tensors in vectors, on all threads.
#if defined(LAMINA_OPS_ELEMENTWISE_ELEMENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LAMINA_OPS_ELEMENTWISE_ELEMENTS_INL_H_
#undef LAMINA_OPS_ELEMENTWISE_ELEMENTS_INL_H_
#else
#define LAMINA_OPS_ELEMENTWISE_ELEMENTS_INL_H_
#endif

#include <hwy/highway.h>

#include "lamina/base/simd_stream-inl.h"
#include "lamina/base/threads.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {
using namespace lamina::HWY_NAMESPACE;  // NOLINT: the vector helpers of this target

/// Elements one thread takes at a time: a multiple of every vector length and of Philox's four words.
inline constexpr int64_t kElementGrain = 65536;

/// to[i] = body(i, count) for every i in [0, n) that starts a vector; body loads `count` elements with load_n() and
/// gives a vector.
template <class T, class F>
void write_elements(const Threads& threads, T* to, int64_t n, const F& body) {
  const bool streaming = should_stream(to, n, kElementGrain);
  threads.ranges(n, kElementGrain, [&](int64_t begin, int64_t end) HWY_ATTR {
    const ComputeTag<T> d;
    for_vectors(d, end - begin, [&](int64_t i, size_t count) HWY_ATTR {
      put_n(d, body(begin + i, count), to + begin + i, count, streaming);
    });
    if (streaming) hwy::FlushStream();
  });
}

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
