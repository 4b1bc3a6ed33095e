// Random words are generated into a buffer in L1, a few hundred at a time, and compared with the threshold while the
// elements are processed.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/ops/dropout/dropout_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lamina/base/simd_philox-inl.h"
#include "lamina/base/simd_stream-inl.h"
#include "lamina/ops/dropout/dropout_kernel.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {
using namespace lamina::HWY_NAMESPACE;  // NOLINT: SIMD helpers of this target

constexpr int64_t kWords = 512;  // a multiple of the words per step of philox_words

/// The mask of lanes whose word is at least the threshold. The comparison is signed, so both sides are offset by 2^31;
/// for f64 both are widened first.
template <class D>
HWY_INLINE hn::Mask<D> kept_lanes(D d, const uint32_t* words, uint32_t threshold) {
  const hn::Rebind<uint32_t, D> d32;
  const hn::RebindToSigned<D> di;
  if constexpr (sizeof(hn::TFromD<D>) == sizeof(uint64_t)) {
    const auto wide = hn::PromoteTo(hn::RebindToUnsigned<D>(), hn::LoadU(d32, words));
    return hn::RebindMask(d, hn::Gt(hn::BitCast(di, wide), hn::Set(di, int64_t{threshold} - 1)));
  } else {
    const auto flip = hn::Set(d32, 0x80000000U);
    const auto word = hn::BitCast(di, hn::Xor(hn::LoadU(d32, words), flip));
    const auto limit = hn::BitCast(di, hn::Xor(hn::Set(d32, threshold), flip));
    return hn::RebindMask(d, hn::Not(hn::Lt(word, limit)));
  }
}

template <class T>
void apply(const Tensor& x_in, uint32_t threshold, double scale_in, const RandomKey& key, int64_t first,
           const Tensor& y_in) {
  const T* x = x_in.data<T>();
  T* y = y_in.data<T>();
  const bool streaming = should_stream(y, y_in.numel(), kWords);
  y_in.device().threads().ranges(y_in.numel(), 128 * kWords, [&](int64_t begin, int64_t end) HWY_ATTR {
    const ComputeTag<T> d;
    const auto scale = hn::Set(d, static_cast<Accumulate<T>>(scale_in));
    HWY_ALIGN uint32_t drawn[kWords + 4 * HWY_MAX_BYTES];
    const int64_t skipped = first % 4;  // words are generated from a multiple of four on
    const uint32_t* words = drawn + skipped;
    for (int64_t block = begin; block < end; block += kWords) {
      const int64_t n = std::min(kWords, end - block);
      philox_words(key, first - skipped + block, n + skipped, drawn);
      for_vectors(d, n, [&](int64_t i, size_t count) HWY_ATTR {
        const auto scaled = hn::Mul(load_n(d, x + block + i, count), scale);
        put_n(d, hn::IfThenElseZero(kept_lanes(d, words + i, threshold), scaled), y + block + i, count, streaming);
      });
    }
    if (streaming) hwy::FlushStream();
  });
}

void dropout_apply(const Tensor& x, uint32_t threshold, double scale, const RandomKey& key, int64_t first,
                   const Tensor& y) {
  visit_floating(x.dtype(), [&](auto tag) { apply<typename decltype(tag)::type>(x, threshold, scale, key, first, y); });
}

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lamina::ops {
HWY_EXPORT(dropout_apply);

namespace cpu {
void dropout_apply(const Tensor& x, uint32_t threshold, double scale, const RandomKey& key, int64_t first,
                   const Tensor& y) {
  HWY_DYNAMIC_DISPATCH(dropout_apply)(x, threshold, scale, key, first, y);
}
}  // namespace cpu
}  // namespace lamina::ops
#endif
