// Products of many 16-bit rows of x with a quantized weight: writes the weight as 16-bit numbers to temporary memory
// and multiplies with cuBLASLt. From about 64 rows on this costs less than unpacking the weight once per tile of rows.
#include "lamina/ops/linear/linear_kernel.h"
#include "lamina/ops/linear/quantized/quantized_block.cuh"

namespace lamina::ops::cuda {
namespace {

using namespace lamina::cuda;  // NOLINT: kernel helpers

constexpr int kThreads = 256;
constexpr int kColumns = 8;  // columns that a thread stores at once

/// Converts and scales four numbers of a weight row. q8 has one number per byte; q4 has them in the lower or the upper
/// halves of the bytes.
template <QuantizedFormat kFormat>
__device__ inline void unpack_four(uint32_t word, bool upper, float scale, float* to) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const auto byte = static_cast<int>(word >> (8 * i) & 0xFFU);
    const int number = kFormat == QuantizedFormat::q8 ? byte - 128 : ((upper ? byte >> 4 : byte) & 15) - 8;
    to[i] = scale * static_cast<float>(number);
  }
}

/// A thread writes one block (32 columns) of a row. Adjacent threads handle the 16 rows of a group.
template <QuantizedFormat kFormat, class T>
__global__ void __launch_bounds__(kThreads)
    dequantize_rows_kernel(QuantizedGroups weights, int blocks, int64_t in, T* to) {
  // 32-bit words per block.
  constexpr int kWords = kQuantizedRows * kQuantizedBlock / (kFormat == QuantizedFormat::q8 ? 4 : 8);
  const int64_t item = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  const int r = static_cast<int>(item % kQuantizedRows);
  const int64_t pair = item / kQuantizedRows;
  const int64_t group = pair / blocks;
  const int64_t block = pair - group * blocks;
  const int64_t row = group * kQuantizedRows + r;
  if (group >= weights.groups || row >= weights.out) return;
  const uint8_t* data = weights.data + group * weights.group_bytes;
  const float scale = __half2float(reinterpret_cast<const __half*>(data)[block * kQuantizedRows + r]);
  const auto* words = reinterpret_cast<const uint32_t*>(data + weights.scale_bytes) + block * kWords + r;
  uint32_t held[kWords / kQuantizedRows];
#pragma unroll
  for (int n = 0; n < kWords / kQuantizedRows; ++n) held[n] = __ldg(words + n * kQuantizedRows);
  T* target = to + row * in + block * kQuantizedBlock;
#pragma unroll
  for (int n = 0; n < kQuantizedBlock; n += kColumns) {
    if (block * kQuantizedBlock + n >= in) return;
    float values[kColumns];
#pragma unroll
    for (int i = 0; i < kColumns; i += 4) {
      const int quarter = (n + i) / 4;
      constexpr bool kBytes = kFormat == QuantizedFormat::q8;
      unpack_four<kFormat>(held[kBytes ? quarter : quarter % 4], quarter >= 4, scale, values + i);
    }
    Pack<T> pack;
    static_assert(Pack<T>::kSize == kColumns);
#pragma unroll
    for (int i = 0; i < kColumns; ++i) pack.values[i] = from_float<T>(values[i]);
    store_pack(target + n, pack);
  }
}

template <class T>
void dequantize_rows(const QuantizedWeight& weight, const Tensor& to) {
  const QuantizedGroups groups(weight);
  const auto blocks = static_cast<int>(weight.blocks());
  const int grid = blocks_for(groups.groups * blocks * kQuantizedRows, kThreads);
  auto* target = static_cast<T*>(to.raw());
  cudaStream_t stream = stream_of(to.device());
  if (weight.format == QuantizedFormat::q8) {
    dequantize_rows_kernel<QuantizedFormat::q8><<<grid, kThreads, 0, stream>>>(groups, blocks, weight.in, target);
  } else {
    dequantize_rows_kernel<QuantizedFormat::q4><<<grid, kThreads, 0, stream>>>(groups, blocks, weight.in, target);
  }
  check_launch("quantized_linear");
}

}  // namespace

bool quantized_dequantized(const QuantizedLinear& args) {
  const DType type = args.x.dtype();
  const bool fits = (type == DType::bf16 || type == DType::f16) && args.weight.in > 0 && args.weight.in % kColumns == 0;
  if (!fits) return false;
  const Tensor weight = Tensor::empty({args.weight.out, args.weight.in}, type, args.x.device());
  type == DType::bf16 ? dequantize_rows<__nv_bfloat16>(args.weight, weight)
                      : dequantize_rows<__half>(args.weight, weight);
  linear_by_gemm({args.x, weight, args.bias, args.activation, args.y, Tensor()});
  return true;
}

}  // namespace lamina::ops::cuda
