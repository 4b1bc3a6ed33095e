// SIMD version of Philox4x32, bit-identical to base/philox.h.
#if defined(LAMINA_BASE_SIMD_PHILOX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LAMINA_BASE_SIMD_PHILOX_INL_H_
#undef LAMINA_BASE_SIMD_PHILOX_INL_H_
#else
#define LAMINA_BASE_SIMD_PHILOX_INL_H_
#endif

#include <hwy/highway.h>

#include "lamina/base/philox.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Applies rounds [kFirst, kLast). Each 64-bit lane holds one counter's state in its lower half. The upper half may
/// hold anything, because the multiplication reads only lower halves.
template <int kFirst, int kLast, class D, class V = hn::Vec<D>>
HWY_INLINE void philox_rounds(D d, uint64_t seed, V& x0, V& x1, V& x2, V& x3) {
  const hn::Repartition<uint32_t, D> d32;
  const auto lower = [&](uint32_t value) HWY_ATTR { return hn::Set(d, uint64_t{value}); };
  const auto product = [&](V x, V m) HWY_ATTR { return hn::MulEven(hn::BitCast(d32, x), hn::BitCast(d32, m)); };
  const V m0 = lower(0xD2511F53U);
  const V m1 = lower(0xCD9E8D57U);
  uint32_t k0 = static_cast<uint32_t>(seed) + kFirst * 0x9E3779B9U;
  uint32_t k1 = static_cast<uint32_t>(seed >> 32) + kFirst * 0xBB67AE85U;
  for (int round = kFirst; round < kLast; ++round) {
    const V p0 = product(x0, m0);
    const V p1 = product(x2, m1);
    x0 = hn::Xor(hn::Xor(hn::ShiftRight<32>(p1), x1), lower(k0));
    x2 = hn::Xor(hn::Xor(hn::ShiftRight<32>(p0), x3), lower(k1));
    x1 = p1;
    x3 = p0;
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
}

/// Number of words that one step of philox_words writes.
HWY_INLINE int64_t philox_step() {
  const hn::ScalableTag<uint64_t> d;
  return 4 * static_cast<int64_t>(hn::Lanes(d));
}

/// Writes words[i] = philox_word(key, first + i) for i < count. `first` must be a multiple of 4. May write up to
/// philox_step() − 1 more words after them.
inline void philox_words(const RandomKey& key, int64_t first, int64_t count, uint32_t* words) {
  const hn::ScalableTag<uint64_t> d;
  const hn::Repartition<uint32_t, decltype(d)> d32;
  for (int64_t i = 0; i < count; i += philox_step()) {
    auto x0 = hn::Iota(d, static_cast<uint64_t>(first + i) / 4);
    auto x1 = hn::ShiftRight<32>(x0);
    auto x2 = hn::Set(d, key.stream);
    auto x3 = hn::Set(d, key.stream >> 32);
    philox_rounds<0, kPhiloxRounds>(d, key.seed, x0, x1, x2, x3);
    const auto join = [&](hn::Vec<decltype(d)> low, hn::Vec<decltype(d)> high) HWY_ATTR {
      return hn::BitCast(d, hn::OddEven(hn::BitCast(d32, hn::ShiftLeft<32>(high)), hn::BitCast(d32, low)));
    };
    hn::StoreInterleaved2(join(x0, x1), join(x2, x3), d, reinterpret_cast<uint64_t*>(words + i));
  }
}

}  // namespace lamina::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
