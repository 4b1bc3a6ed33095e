#pragma once

// The output projection of one token with a quantized weight, for output_step.cuh. It copies a KV head's columns of the
// weight to shared memory, quantizes the attention output to 8 bits, and multiplies it by 16 weight rows at a time.

#include "lamina/ops/linear/quantized/quantized_block.cuh"
#include "lamina/tensor/cuda/l2_policy_loads.cuh"
#include "lamina/tensor/cuda/tma.cuh"

namespace lamina::ops::cuda::output_step {

struct QuantizedOutput {
  const uint8_t* data;  ///< groups of 16 rows, see QuantizedWeight; null: the weight is not quantized
  int64_t group_bytes;
  int scale_bytes;
  int head_blocks;  ///< blocks of 32 columns per KV head
};

/// The columns of a KV head in one group of weight rows, in shared memory: scales [blocks, 16], then the values.
template <QuantizedFormat kFormat>
struct QuantizedTile {
  static constexpr int kScales = kQuantizedRows * 2;  ///< bytes of the scales per block
  static constexpr int kValues = kQuantizedRows * kQuantizedBlock / (kFormat == QuantizedFormat::q8 ? 1 : 2);
  static constexpr int kOffset = kFormat == QuantizedFormat::q8 ? 128 : 8;

  __host__ __device__ static int bytes(int blocks) { return blocks * (kScales + kValues); }

  /// Starts copying the tile of `group`. `barrier` must expect bytes(head_blocks).
  __device__ static void copy(const QuantizedOutput& w, int group, int head, uint32_t to, uint32_t barrier) {
    const uint8_t* from = w.data + group * w.group_bytes;
    const int first = head * w.head_blocks;
    const uint64_t policy = lamina::cuda::evict_first_policy();
    lamina::cuda::bulk_copy(to, from + first * kScales, w.head_blocks * kScales, barrier, policy);
    lamina::cuda::bulk_copy(to + w.head_blocks * kScales, from + w.scale_bytes + first * kValues,
                            w.head_blocks * kValues, barrier, policy);
  }

  struct Factor {
    float scale;
    int correct;  ///< corrects for the offset of the unsigned weights
  };
  /// Quantizes columns n and n + 1. Sixteen adjacent lanes have a block of 32 columns.
  __device__ static void quantize(float2 v, int n, unsigned char* numbers, Factor* factors) {
    using lamina::cuda::kAllLanes;
    uint32_t most = max(__float_as_uint(v.x) & 0x7fffffffU, __float_as_uint(v.y) & 0x7fffffffU);
#pragma unroll
    for (int step = 1; step < 16; step *= 2) most = max(most, __shfl_xor_sync(kAllLanes, most, step));
    const XScale scale(__uint_as_float(most));
    const int a = scale.round(v.x);
    const int b = scale.round(v.y);
    int sum = a + b;
#pragma unroll
    for (int step = 1; step < 16; step *= 2) sum += __shfl_xor_sync(kAllLanes, sum, step);
    *reinterpret_cast<uint16_t*>(numbers + n) = static_cast<uint16_t>((a & 0xff) | (b & 0xff) << 8);
    if (n % kQuantizedBlock == 0) factors[n / kQuantizedBlock] = {scale.value, -kOffset * sum};
  }

  /// Products of rows 2 · (lane / 4) and 2 · (lane / 4) + 1 with the quantized attention output, over blocks [block,
  /// end).
  __device__ static float2 multiply(const unsigned char* tile, int blocks, int block, int end,
                                    const unsigned char* numbers, const Factor* factors) {
    const int lane = static_cast<int>(threadIdx.x) % lamina::cuda::kWarp;
    const unsigned char* values = tile + blocks * kScales + lane % 4 * kQuantizedRows * 4 + lane / 4 * 8;
    const auto* x = reinterpret_cast<const uint32_t*>(numbers) + lane % 4;
    float2 total{};
#pragma unroll 4
    for (; block < end; ++block) {
      const uint2 first = *reinterpret_cast<const uint2*>(values + block * kValues);
      uint2 second = make_uint2(0, 0);
      if constexpr (kFormat == QuantizedFormat::q8) {
        second = *reinterpret_cast<const uint2*>(values + block * kValues + kValues / 2);
      }
      uint32_t w[4];
      unpack_numbers<kFormat>(first, second, w);
      const Factor factor = factors[block];
      int sums[4] = {factor.correct, factor.correct, factor.correct, factor.correct};
      multiply_block(w, x[block * 8], x[block * 8 + 4], sums);
      const float2 scale = __half22float2(*reinterpret_cast<const __half2*>(tile + block * kScales + lane / 4 * 4));
      total.x = fmaf(static_cast<float>(sums[0]), scale.x * factor.scale, total.x);
      total.y = fmaf(static_cast<float>(sums[2]), scale.y * factor.scale, total.y);
    }
    return total;
  }
};

/// How the output projection is stored.
enum class OutputWeight : uint8_t { bf16, q8, q4 };
template <OutputWeight kWeight>
using QuantizedTileOf = QuantizedTile<kWeight == OutputWeight::q8 ? QuantizedFormat::q8 : QuantizedFormat::q4>;

}  // namespace lamina::ops::cuda::output_step
