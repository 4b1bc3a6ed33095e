#pragma once

// One block of a quantized weight (32 columns × 16 rows) in the registers of a warp, its product with 8-bit x on tensor
// cores, and the quantization of x.

#include "lamina/ops/linear/quantized_linear_kernel.h"
#include "lamina/tensor/cuda/kernel.cuh"

namespace lamina::ops::cuda {

constexpr int kQuantizedBlock = static_cast<int>(QuantizedWeight::kBlock);
constexpr int kQuantizedRows = static_cast<int>(QuantizedWeight::kRows);

struct QuantizedGroups {
  const uint8_t* data;
  int64_t groups, group_bytes, scale_bytes, out;

  explicit QuantizedGroups(const QuantizedWeight& w)
      : data(w.data.data<uint8_t>()),
        groups(w.groups()),
        group_bytes(w.group_bytes()),
        scale_bytes(w.scale_bytes()),
        out(w.out) {}
};

/// Whether a decoding kernel with one row of x lets the next kernel start only after x has arrived, not at once. That
/// is faster with large 8-bit weights, and slower with 4-bit weights. Small weights were not measured and start it at
/// once.
inline bool starts_next_late(const QuantizedWeight& w) {
  constexpr int64_t kLeastBytes = 4 << 20;
  return w.format == QuantizedFormat::q8 && w.groups() * w.group_bytes() >= kLeastBytes;
}

/// Converts a lane's two rows of a block to a tensor-core fragment. q8: `first` and `second` are two quarters of the
/// block. q4: `first` holds both, in the lower and upper halves of its bytes.
template <QuantizedFormat kFormat>
__device__ inline void unpack_numbers(uint2 first, uint2 second, uint32_t (&w)[4]) {
  constexpr uint32_t kLow = 0x0f0f0f0fU;
  constexpr bool kBytes = kFormat == QuantizedFormat::q8;
  w[0] = kBytes ? first.x : first.x & kLow;
  w[1] = kBytes ? first.y : first.y & kLow;
  w[2] = kBytes ? second.x : (first.x >> 4) & kLow;
  w[3] = kBytes ? second.y : (first.y >> 4) & kLow;
}

/// A lane's values and scales of one block: those of rows 2g and 2g + 1 with g = lane / 4.
template <QuantizedFormat kFormat>
struct HeldBlock {
  uint2 first, second;
  __half2 scale;

  __device__ HeldBlock(const uint8_t* group, const uint8_t* numbers, int64_t block, int lane) {
    constexpr int kWords = kQuantizedRows * kQuantizedBlock / (kFormat == QuantizedFormat::q8 ? 4 : 8);
    const auto* from =
        reinterpret_cast<const uint2*>(numbers) + (block * kWords + lane % 4 * kQuantizedRows + lane / 4 * 2) / 2;
    first = __ldg(from);
    second = kFormat == QuantizedFormat::q8 ? __ldg(from + 4 * kQuantizedRows / 2) : make_uint2(0, 0);
    scale = __ldg(reinterpret_cast<const __half2*>(group) + block * (kQuantizedRows / 2) + lane / 4);
  }
  __device__ void unpack(uint32_t (&w)[4]) const { unpack_numbers<kFormat>(first, second, w); }
};

/// sums += w · x for 16 weight rows and 8 rows of x over 32 columns. A lane holds the results (row of w, row of x) =
/// (2g, 2i), (2g, 2i + 1), (2g + 1, 2i), (2g + 1, 2i + 1) with g = lane / 4 and i = lane % 4.
__device__ inline void multiply_block(const uint32_t (&w)[4], uint32_t x0, uint32_t x1, int (&sums)[4]) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};\n"
      : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
      : "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]), "r"(x0), "r"(x1));
}

/// total += scale of w · scale of x · (w · x) for one block, with results as in multiply_block(). The integer sums
/// start from `correct`, which corrects for the offset of the unsigned weights.
__device__ inline void add_block(const uint32_t (&w)[4], uint32_t x0, uint32_t x1, int2 correct, float2 scale,
                                 float2 by, float (&total)[4]) {
  int sums[4] = {correct.x, correct.y, correct.x, correct.y};
  multiply_block(w, x0, x1, sums);
  total[0] = fmaf(static_cast<float>(sums[0]), scale.x * by.x, total[0]);
  total[1] = fmaf(static_cast<float>(sums[1]), scale.x * by.y, total[1]);
  total[2] = fmaf(static_cast<float>(sums[2]), scale.y * by.x, total[2]);
  total[3] = fmaf(static_cast<float>(sums[3]), scale.y * by.y, total[3]);
}

/// 32 values of x, one per lane, quantized to 8 bits. Scale and sum are the same in all lanes.
struct RoundedBlock {
  int8_t number;
  float scale;
  int sum;
};
__device__ inline RoundedBlock round_block(float value) {
  float largest = lamina::cuda::warp_max(fabsf(value));
  if (__any_sync(lamina::cuda::kAllLanes, value != value)) largest = NAN;
  const float scale = largest / 127.0F;
  // If the scale is not finite, it alone turns every sum into NaN. If it is too small to divide by, the block counts as
  // zeros.
  const bool usable = isfinite(scale) && scale > 1e-37F;
  const int number = usable ? __float2int_rn(value * (127.0F / largest)) : 0;
  return {static_cast<int8_t>(number), scale, __reduce_add_sync(lamina::cuda::kAllLanes, number)};
}

__device__ inline uint32_t four_bytes(int a, int b, int c, int d) {
  return __byte_perm(__byte_perm(a, b, 0x0040), __byte_perm(c, d, 0x0040), 0x5410);
}

/// largest / 127 and 127 / largest, computed by reciprocals with one correction step. Exact division would add calls
/// for special cases, which need registers that the weights need.
struct XScale {
  float value, inverse;
  bool usable;

  __device__ explicit XScale(float largest) {
    constexpr float kStep = 1.0F / 127.0F;
    const float about = largest * kStep;
    value = fmaf(fmaf(-127.0F, about, largest), kStep, about);  // NaN if `largest` is not finite
    usable = value > 1e-37F;
    const float near = lamina::cuda::reciprocal(value);
    inverse = fmaf(fmaf(-largest, near, 127.0F), near * kStep, near);
  }
  __device__ int round(float x) const { return usable ? __float2int_rn(x * inverse) : 0; }
};

}  // namespace lamina::ops::cuda
