// quantized_linear() on tensor cores, for every call. A block of a quantized weight (32 columns × 16 rows) is one
// operand of m16n8k32 (unsigned × signed 8-bit). One or two 8-byte loads per lane fill the fragment; rows 2i and 2i + 1
// take the place of rows i and i + 8. The offset of the unsigned weights is corrected by −128 · Σ x (q4: −8 · Σ x),
// from which each sum starts. Sums within a block are exact; its scales are applied in f32.
//
// x is quantized first, as on the CPU. A thread block of eight warps takes one group of 16 weight rows and up to 64
// rows of x. Each warp takes every eighth block of weights, so a weight is read once from memory for all these rows.
// The partial sums of the warps are added in order.
#include "lamina/ops/linear/quantized_linear_kernel.h"

#include "lamina/ops/activation/activation.cuh"
#include "lamina/ops/linear/quantized/quantized_block.cuh"

namespace lamina::ops::cuda {
namespace {

using lamina::cuda::check_launch;
using lamina::cuda::device_data;
using lamina::cuda::DeviceType;
using lamina::cuda::from_float;
using lamina::cuda::kWarp;
using lamina::cuda::stream_of;
using lamina::cuda::to_float;

constexpr const char* kOp = "quantized_linear";
constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;
constexpr int kBlock = kQuantizedBlock;
constexpr int kRows = kQuantizedRows;

/// x quantized to 8 bits in blocks; its rows are padded to whole tensor-core tiles.
struct Rounded {
  int8_t* numbers;              // [padded, blocks · 32]
  float* scales;                // [blocks, padded]
  int32_t* offset_corrections;  // [blocks, padded]
  int64_t rows, padded, blocks;
};

/// Quantizes x: one warp per block of 32 columns of a row.
template <class T>
__global__ void __launch_bounds__(kThreads) round_kernel(const T* x, int64_t in, int offset, Rounded to) {
  const int64_t item = (blockIdx.x * int64_t{kThreads} + threadIdx.x) / kWarp;
  const int lane = threadIdx.x % kWarp;
  if (item >= to.padded * to.blocks) return;
  const int64_t row = item / to.blocks;
  const int64_t block = item % to.blocks;
  const int64_t column = block * kBlock + lane;
  const RoundedBlock block_of_x = round_block(row < to.rows && column < in ? to_float(x[row * in + column]) : 0.0F);
  to.numbers[row * to.blocks * kBlock + column] = block_of_x.number;
  if (lane != 0) return;
  to.scales[block * to.padded + row] = block_of_x.scale;
  to.offset_corrections[block * to.padded + row] = -offset * block_of_x.sum;
}

/// Multiplies kTiles · 8 rows of x with one group of weight rows.
template <QuantizedFormat kFormat, int kTiles, class T>
__global__ void __launch_bounds__(kThreads)
    multiply_kernel(Rounded x, QuantizedGroups weights, const float* bias, Activation function, T* y) {
  __shared__ float shares[kWarps][kTiles * 8][kRows];
  const int warp = threadIdx.x / kWarp;
  const int lane = threadIdx.x % kWarp;
  const int g = lane / 4;
  const int pair = lane % 4;
  const int64_t row0 = blockIdx.y * int64_t{kTiles * 8};
  const uint8_t* group = weights.data + blockIdx.x * weights.group_bytes;
  const uint8_t* numbers = group + weights.scale_bytes;
  float total[kTiles][4] = {};
#pragma unroll(kTiles == 1 ? 4 : 1)
  for (int64_t block = warp; block < x.blocks; block += kWarps) {
    const HeldBlock<kFormat> held(group, numbers, block, lane);
    uint32_t w[4];
    held.unpack(w);
    const float2 scale = __half22float2(held.scale);
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const int64_t row = row0 + tile * 8;
      uint32_t x0 = 0;
      uint32_t x1 = 0;
      if (row + g < x.rows) {
        const auto* from =
            reinterpret_cast<const uint32_t*>(x.numbers + ((row + g) * x.blocks + block) * kBlock) + pair;
        x0 = __ldg(from);
        x1 = __ldg(from + 4);
      }
      const int64_t at = block * x.padded + row + pair * 2;
      const int2 correct = *reinterpret_cast<const int2*>(x.offset_corrections + at);
      const float2 by = *reinterpret_cast<const float2*>(x.scales + at);
      add_block(w, x0, x1, correct, scale, by, total[tile]);
    }
  }
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) shares[warp][tile * 8 + pair * 2 + i % 2][g * 2 + i / 2] = total[tile][i];
  }
  __syncthreads();
  for (int i = threadIdx.x; i < kTiles * 8 * kRows; i += kThreads) {
    const int64_t row = row0 + i / kRows;
    const int64_t column = blockIdx.x * int64_t{kRows} + i % kRows;
    if (row >= x.rows || column >= weights.out) continue;
    float sum = 0;
#pragma unroll
    for (int part = 0; part < kWarps; ++part) sum += shares[part][i / kRows][i % kRows];
    if (bias != nullptr) sum += bias[column];
    y[row * weights.out + column] = from_float<T>(activation_value(function, sum));
  }
}

template <QuantizedFormat kFormat, int kTiles, class T>
void launch(const QuantizedLinear& args, const Rounded& x) {
  const QuantizedWeight& w = args.weight;
  const QuantizedGroups weights(w);
  const dim3 grid(static_cast<unsigned>(w.groups()), static_cast<unsigned>((x.rows + kTiles * 8 - 1) / (kTiles * 8)));
  multiply_kernel<kFormat, kTiles><<<grid, kThreads, 0, stream_of(args.x.device())>>>(
      x, weights, device_data<float>(args.bias), args.activation, device_data<T>(args.y));
  check_launch(kOp);
}

/// Launches the kernel with as few tiles of eight rows as possible, at most eight tiles.
template <QuantizedFormat kFormat, class T>
void launch_rows(const QuantizedLinear& args, const Rounded& x) {
  if (x.rows <= 8) return launch<kFormat, 1, T>(args, x);
  if (x.rows <= 16) return launch<kFormat, 2, T>(args, x);
  if (x.rows <= 32) return launch<kFormat, 4, T>(args, x);
  launch<kFormat, 8, T>(args, x);
}

template <class T>
void run(const QuantizedLinear& args) {
  const Device& device = args.x.device();
  const int64_t rows = args.x.dim(0);
  const int64_t blocks = args.weight.blocks();
  const int64_t padded = (rows + 63) / 64 * 64;
  const Tensor numbers = Tensor::empty({padded, blocks * kBlock}, DType::u8, device);
  const Tensor scales = Tensor::empty({blocks, padded}, DType::f32, device);
  const Tensor offset_corrections = Tensor::empty({blocks, padded}, DType::i32, device);
  const Rounded x{reinterpret_cast<int8_t*>(numbers.data<uint8_t>()),
                  scales.data<float>(),
                  offset_corrections.data<int32_t>(),
                  rows,
                  padded,
                  blocks};
  const bool bytes = args.weight.format == QuantizedFormat::q8;
  if (blocks > 0) {
    round_kernel<<<lamina::cuda::blocks_for(padded * blocks, kWarps), kThreads, 0, stream_of(device)>>>(
        static_cast<const DeviceType<T>*>(device_data<T>(args.x)), args.x.dim(1), bytes ? 128 : 8, x);
    check_launch(kOp);
  }
  bytes ? launch_rows<QuantizedFormat::q8, T>(args, x) : launch_rows<QuantizedFormat::q4, T>(args, x);
}

__global__ void dequantize_kernel(QuantizedGroups weights, bool bytes, int64_t in, int64_t count, float* to) {
  const int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  if (i >= count) return;
  const int64_t row = i / in;
  const int64_t block = i % in / kBlock;
  const int k = static_cast<int>(i % in % kBlock);
  const int r = static_cast<int>(row % kRows);
  const uint8_t* group = weights.data + row / kRows * weights.group_bytes;
  const float scale = __half2float(reinterpret_cast<const __half*>(group)[block * kRows + r]);
  const uint8_t* numbers = group + weights.scale_bytes;
  const auto place = [&](int at) { return (at / 4 * kRows + r) * 4 + at % 4; };
  int q = 0;
  if (bytes) {
    q = numbers[block * kRows * kBlock + place(k)] - 128;
  } else {
    const uint8_t both = numbers[block * kRows * kBlock / 2 + place(k % 16)];
    q = (k < 16 ? both & 15 : both >> 4) - 8;
  }
  to[i] = scale * static_cast<float>(q);
}

}  // namespace

void quantized_linear_by_mma(const QuantizedLinear& args) {
  lamina::cuda::visit_floating(kOp, args.x.dtype(), [&](auto tag) { run<typename decltype(tag)::type>(args); });
}

void quantize(const Quantize& args) {
  const Device host = Device::cpu();
  QuantizedWeight to = args.to;
  to.data = Tensor::empty(args.to.data.shape(), DType::u8, host);
  cpu::quantize({args.weight.to(host), to});
  Tensor target = args.to.data;
  target.copy_(to.data.to(target.device()));
}

void dequantize(const QuantizedWeight& weight, const Tensor& to) {
  if (to.numel() == 0) return;
  const QuantizedGroups weights(weight);
  dequantize_kernel<<<lamina::cuda::blocks_for(to.numel(), kThreads), kThreads, 0, stream_of(to.device())>>>(
      weights, weight.format == QuantizedFormat::q8, weight.in, to.numel(), to.data<float>());
  check_launch("dequantize");
}

}  // namespace lamina::ops::cuda
