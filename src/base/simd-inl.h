// SIMD loads and stores for every floating element type; values are computed in f32 (f64 for f64). Included once per
// target by kernels that use Highway's foreach_target.
#if defined(LAMINA_BASE_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LAMINA_BASE_SIMD_INL_H_
#undef LAMINA_BASE_SIMD_INL_H_
#else
#define LAMINA_BASE_SIMD_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "lamina/base/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Vector tag of the type in which values of type T are computed.
template <class T>
using ComputeTag = hn::ScalableTag<Accumulate<T>>;

/// Loads a vector of any element type, converted to the compute type.
template <class D>
HWY_INLINE hn::Vec<D> load(D d, const hn::TFromD<D>* from) {
  return hn::LoadU(d, from);
}

template <class D>
HWY_INLINE hn::Vec<D> load(D d, const bf16* from) {
  const hn::Rebind<uint16_t, D> half;
  const hn::RebindToUnsigned<D> bits;
  const auto upper = hn::PromoteTo(bits, hn::LoadU(half, reinterpret_cast<const uint16_t*>(from)));
  return hn::BitCast(d, hn::ShiftLeft<16>(upper));
}

template <class D>
HWY_INLINE hn::Vec<D> load(D d, const f16* from) {
#if HWY_TARGET <= HWY_AVX2
  const hn::Rebind<hwy::float16_t, D> half;
  return hn::PromoteTo(d, hn::LoadU(half, reinterpret_cast<const hwy::float16_t*>(from)));
#else
  HWY_ALIGN float lanes[hn::MaxLanes(d)];
  for (size_t i = 0; i < hn::Lanes(d); ++i) lanes[i] = static_cast<float>(from[i]);
  return hn::Load(d, lanes);
#endif
}

/// Loads 8-bit integers that are stored with an offset: the byte q + 128 stands for q.
template <class D>
HWY_INLINE hn::Vec<D> load(D d, const uint8_t* from) {
  const hn::Rebind<uint8_t, D> bytes;
  const hn::RebindToSigned<D> di;
  return hn::ConvertTo(d, hn::Sub(hn::PromoteTo(di, hn::LoadU(bytes, from)), hn::Set(di, 128)));
}

template <class D>
HWY_INLINE void store(D d, hn::Vec<D> value, hn::TFromD<D>* to) {
  hn::StoreU(value, d, to);
}

/// Rounds to nearest, ties to even. A NaN stays a NaN.
template <class D>
HWY_INLINE void store(D /*d*/, hn::Vec<D> value, bf16* to) {
  const hn::Rebind<uint16_t, D> half;
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> di;
  const auto bits = hn::BitCast(du, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1U));
  const auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, odd), hn::Set(du, 0x7fffU)));
  const auto quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(du, 0x40U));
  const auto chosen = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(value)), quiet, rounded);
  hn::StoreU(hn::DemoteTo(half, hn::BitCast(di, chosen)), half, reinterpret_cast<uint16_t*>(to));
}

template <class D>
HWY_INLINE void store([[maybe_unused]] D d, hn::Vec<D> value, f16* to) {
#if HWY_TARGET <= HWY_AVX2
  const hn::Rebind<hwy::float16_t, D> half;
  hn::StoreU(hn::DemoteTo(half, value), half, reinterpret_cast<hwy::float16_t*>(to));
#else
  HWY_ALIGN float lanes[hn::MaxLanes(d)];
  hn::Store(value, d, lanes);
  for (size_t i = 0; i < hn::Lanes(d); ++i) to[i] = f16(lanes[i]);
#endif
}

/// Loads the first `count` < Lanes(d) elements and fills the rest with zeros. Does not read past them.
template <class D, class T>
HWY_INLINE hn::Vec<D> load_some(D d, const T* from, size_t count) {
  T lanes[hn::MaxLanes(d)] = {};
  if constexpr (std::is_same_v<T, uint8_t>) std::fill(lanes, lanes + hn::MaxLanes(d), uint8_t{128});
  for (size_t i = 0; i < count; ++i) lanes[i] = from[i];
  return load(d, lanes);
}

/// Stores the first `count` < Lanes(d) elements. Does not write past them.
template <class D, class T>
HWY_INLINE void store_some(D d, hn::Vec<D> value, T* to, size_t count) {
  T lanes[hn::MaxLanes(d)];
  store(d, value, lanes);
  for (size_t i = 0; i < count; ++i) to[i] = lanes[i];
}

/// Calls body(i, count) over [0, n), one vector per step. `count` is Lanes(d), except in a shorter last step, so the
/// body should use load_n() and store_n(). A lambda needs HWY_ATTR.
template <class D, class F>
HWY_INLINE void for_vectors(D d, int64_t n, const F& body) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) body(i, static_cast<size_t>(lanes));
  if (i < n) body(i, static_cast<size_t>(n - i));
}

/// Load or store `count` elements: a whole vector if count is Lanes(d).
template <class D, class T>
HWY_INLINE hn::Vec<D> load_n(D d, const T* from, size_t count) {
  return HWY_LIKELY(count == hn::Lanes(d)) ? load(d, from) : load_some(d, from, count);
}
template <class D, class T>
HWY_INLINE void store_n(D d, hn::Vec<D> value, T* to, size_t count) {
  if (HWY_LIKELY(count == hn::Lanes(d))) {
    store(d, value, to);
  } else {
    store_some(d, value, to, count);
  }
}

}  // namespace lamina::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
