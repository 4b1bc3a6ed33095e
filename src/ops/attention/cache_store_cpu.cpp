// A head's tokens lie one behind the other in the cache, so the rows are taken in its order: token by token within a
// head. A row is converted in vectors (between f64 and the others one by one).
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/ops/attention/cache_store_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lamina/base/simd-inl.h"
#include "lamina/ops/attention/cache_store.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {
using namespace lamina::HWY_NAMESPACE;  // NOLINT: the vector helpers of this target

template <class From, class To>
HWY_INLINE void convert_row(const From* from, To* to, int64_t width) {
  if constexpr (std::is_same_v<Accumulate<From>, Accumulate<To>>) {
    const ComputeTag<To> d;
    for_vectors(d, width, [&](int64_t i, size_t n) HWY_ATTR { store_n(d, load_n(d, from + i, n), to + i, n); });
  } else {
    for (int64_t i = 0; i < width; ++i) to[i] = convert<To>(from[i]);
  }
}

template <class From, class To>
void store_tokens(const Tensor& cache, const Tensor& fresh, const int64_t* places) {
  const int64_t seq = fresh.dim(1);
  const int64_t heads = fresh.dim(2);
  const int64_t width = fresh.dim(3);
  cache.device().threads().ranges(
      fresh.dim(0) * heads * seq, rows_per_range(width), [&](int64_t begin, int64_t end) HWY_ATTR {
        for (int64_t row = begin; row < end; ++row) {
          const int64_t s = row % seq;
          const int64_t head = row / seq % heads;
          const int64_t b = row / seq / heads;
          const From* from =
              fresh.data<From>() + b * fresh.strides()[0] + s * fresh.strides()[1] + head * fresh.strides()[2];
          To* to = cache.data<To>() + b * cache.strides()[0] + head * cache.strides()[1] +
                   (places[b] + s) * cache.strides()[2];
          convert_row(from, to, width);
        }
      });
}

void cache_store(const CacheStore& args) {
  visit_floating(args.k.dtype(), [&](auto from) {
    visit_floating(args.k_cache.dtype(), [&](auto to) {
      using From = typename decltype(from)::type;
      using To = typename decltype(to)::type;
      store_tokens<From, To>(args.k_cache, args.k, args.places.data<int64_t>());
      if (args.v.defined()) store_tokens<From, To>(args.v_cache, args.v, args.places.data<int64_t>());
    });
  });
}

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lamina::ops {
HWY_EXPORT(cache_store);
namespace cpu {
void cache_store(const CacheStore& args) { HWY_DYNAMIC_DISPATCH(cache_store)(args); }
}  // namespace cpu
}  // namespace lamina::ops
#endif
