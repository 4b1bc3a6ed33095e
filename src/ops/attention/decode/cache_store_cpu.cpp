// The tokens of a head are contiguous in the cache, so rows are processed in that order: token by token within a head.
// Rows are converted with SIMD, except between f64 and other types. Quantizing to 8 bits reads a row twice: first to
// find its largest magnitude, then to round it.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/ops/attention/decode/cache_store_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <bit>

#include "lamina/base/simd-inl.h"
#include "lamina/ops/attention/cache_store_kernel.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {
using namespace lamina::HWY_NAMESPACE;  // NOLINT: SIMD helpers of this target

template <class From, class To>
HWY_INLINE void convert_row(const From* from, To* to, int64_t width) {
  if constexpr (std::is_same_v<Accumulate<From>, Accumulate<To>>) {
    const ComputeTag<To> d;
    for_vectors(d, width, [&](int64_t i, size_t n) HWY_ATTR { store_n(d, load_n(d, from + i, n), to + i, n); });
  } else {
    for (int64_t i = 0; i < width; ++i) to[i] = convert<To>(from[i]);
  }
}

template <class D, class From>
HWY_INLINE hn::Vec<D> load_as_f32(D d, const From* from, size_t count) {
  if constexpr (std::is_same_v<From, double>) {
    float lanes[hn::MaxLanes(d)] = {};
    for (size_t i = 0; i < count; ++i) lanes[i] = static_cast<float>(from[i]);
    return hn::LoadU(d, lanes);
  } else {
    return load_n(d, from, count);
  }
}

/// Quantizes a row to 8 bits; returns its scale.
template <class From>
HWY_INLINE float quantize_row(const From* from, uint8_t* to, int64_t width) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::Rebind<uint8_t, decltype(d)> bytes;
  auto most = hn::Zero(di);  // bit patterns without the sign compare like magnitudes; NaN is the largest
  for_vectors(d, width, [&](int64_t i, size_t n) HWY_ATTR {
    most = hn::Max(most, hn::BitCast(di, hn::Abs(load_as_f32(d, from + i, n))));
  });
  const RowScale scale = row_scale(std::bit_cast<float>(hn::GetLane(hn::MaxOfLanes(di, most))));
  for_vectors(d, width, [&](int64_t i, size_t n) HWY_ATTR {
    const auto x = hn::Mul(load_as_f32(d, from + i, n), hn::Set(d, scale.inverse));
    const auto numbers = hn::DemoteTo(bytes, hn::Add(hn::NearestInt(x), hn::Set(di, 128)));
    if (n == hn::Lanes(d)) {
      hn::StoreU(numbers, bytes, to + i);
    } else {
      uint8_t lanes[hn::MaxLanes(d)];
      hn::StoreU(numbers, bytes, lanes);
      std::copy(lanes, lanes + n, to + i);
    }
  });
  return scale.scale;
}

template <class From, class To>
void store_tokens(const Tensor& cache, const Tensor& fresh, const Tensor& scales, const int64_t* places) {
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
          if constexpr (std::is_same_v<To, uint8_t>) {
            scales.data<float>()[b * scales.strides()[0] + head * scales.strides()[1] +
                                 (places[b] + s) * scales.strides()[2]] = quantize_row(from, to, width);
          } else {
            convert_row(from, to, width);
          }
        }
      });
}

void cache_store(const CacheStore& args) {
  const auto store_as = [&](auto from, auto to) {
    using From = typename decltype(from)::type;
    using To = typename decltype(to)::type;
    const auto* places = args.places.data<int64_t>();
    store_tokens<From, To>(args.k_cache, args.k, args.scales.k, places);
    if (args.v.defined()) store_tokens<From, To>(args.v_cache, args.v, args.scales.v, places);
  };
  visit_floating(args.k.dtype(), [&](auto from) {
    if (args.k_cache.dtype() == DType::u8) return store_as(from, TypeTag<uint8_t>{});
    visit_floating(args.k_cache.dtype(), [&](auto to) { store_as(from, to); });
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
