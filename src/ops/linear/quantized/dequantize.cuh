#pragma once

// Turns blocks of a quantized weight into left operands of 16-bit tensor-core products (m16n8k16). The numbers q are
// small integers, which bf16 and f16 represent exactly, so nothing is rounded: the block's scale multiplies the f32
// sums.
//
// The columns of a block may be in any order, as long as both operands use the same. In step s = 0, 1, a lane with p =
// lane % 4 uses columns 16s + 4p … 16s + 4p + 3: four adjacent bytes of the weight, and eight adjacent bytes of x.

#include "lamina/ops/linear/quantized/quantized_block.cuh"
#include "lamina/tensor/cuda/mma.cuh"

namespace lamina::ops::cuda {

/// Converts four numbers of a weight row to two pairs of T. In q4 the numbers are in the lower halves of the bytes.
template <QuantizedFormat kFormat, class T>
__device__ inline void unpack_pairs(uint32_t bytes, uint32_t& low, uint32_t& high) {
  constexpr bool kBf16 = std::is_same_v<T, __nv_bfloat16>;
  using Pair = std::conditional_t<kBf16, __nv_bfloat162, __half2>;
  // The upper bytes of 128 in bf16, and of 1024 in f16. With a number in the mantissa, the result is that constant plus
  // the number.
  constexpr uint32_t kUpper = kBf16 ? 0x43434343U : 0x64646464U;
  const auto minus = [](uint32_t a, uint32_t b) {
    const Pair found = __hsub2(*reinterpret_cast<const Pair*>(&a), *reinterpret_cast<const Pair*>(&b));
    return *reinterpret_cast<const uint32_t*>(&found);
  };
  if constexpr (kFormat == QuantizedFormat::q8 && kBf16) {
    // The mantissa of bf16 has seven bits. The eighth bit of the number decides whether 128 or 256 (exponent bit 0x80)
    // is subtracted.
    const uint32_t seven = bytes & 0x7f7f7f7fU;
    const uint32_t eighth = ~bytes & 0x80808080U;
    low = minus(__byte_perm(seven, kUpper, 0x4140), __byte_perm(eighth, kUpper, 0x4140));
    high = minus(__byte_perm(seven, kUpper, 0x4342), __byte_perm(eighth, kUpper, 0x4342));
  } else {
    constexpr uint32_t kOffset = kBf16 ? 0x43084308U : kFormat == QuantizedFormat::q8 ? 0x64806480U : 0x64086408U;
    low = minus(__byte_perm(bytes, kUpper, 0x4140), kOffset);
    high = minus(__byte_perm(bytes, kUpper, 0x4342), kOffset);
  }
}

/// Converts a block to the left operands of both steps. With g = lane / 4, rows 2g and 2g + 1 take the place of rows g
/// and g + 8.
template <QuantizedFormat kFormat, class T>
__device__ inline void unpack_block(uint2 first, uint2 second, uint32_t (&a)[2][4]) {
  constexpr uint32_t kLow = 0x0f0f0f0fU;
  constexpr bool kBytes = kFormat == QuantizedFormat::q8;
  unpack_pairs<kFormat, T>(kBytes ? first.x : first.x & kLow, a[0][0], a[0][2]);
  unpack_pairs<kFormat, T>(kBytes ? first.y : first.y & kLow, a[0][1], a[0][3]);
  unpack_pairs<kFormat, T>(kBytes ? second.x : (first.x >> 4) & kLow, a[1][0], a[1][2]);
  unpack_pairs<kFormat, T>(kBytes ? second.y : (first.y >> 4) & kLow, a[1][1], a[1][3]);
}

}  // namespace lamina::ops::cuda
