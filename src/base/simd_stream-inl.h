// Streaming (non-temporal) stores, for outputs larger than the caches. base/cache.h decides when to use them.
#if defined(LAMINA_BASE_SIMD_STREAM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LAMINA_BASE_SIMD_STREAM_INL_H_
#undef LAMINA_BASE_SIMD_STREAM_INL_H_
#else
#define LAMINA_BASE_SIMD_STREAM_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "lamina/base/cache.h"
#include "lamina/base/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::HWY_NAMESPACE {

/// Whether put_n() should use streaming stores for an output of `total` elements in rows of `row` elements: the output
/// is large, and every row is aligned to a vector. bf16 and f16 are never streamed.
template <class T>
bool should_stream(const T* to, int64_t total, int64_t row) {
  if constexpr (sizeof(T) != sizeof(Accumulate<T>)) return false;
  const auto bytes = static_cast<int64_t>(sizeof(T));
  return exceeds_last_level_cache(total * bytes) && reinterpret_cast<uintptr_t>(to) % 64 == 0 && row * bytes % 64 == 0;
}

/// Like store_n(), but with non-temporal stores if `streaming`. Call hwy::FlushStream() before other threads read the
/// output.
template <class D, class T>
HWY_INLINE void put_n(D d, hn::Vec<D> value, T* to, size_t count, [[maybe_unused]] bool streaming) {
  if constexpr (std::is_same_v<T, hn::TFromD<D>>) {
    if (streaming && HWY_LIKELY(count == hn::Lanes(d))) {
      hn::Stream(value, d, to);
      return;
    }
  }
  store_n(d, value, to, count);
}

}  // namespace lamina::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
