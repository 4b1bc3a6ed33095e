// Decoding: at most eight rows of x, one launch. Blocks of sixteen warps, two on each processor, round x into shared
// memory once and then take one group of sixteen weight rows after the other, a warp every sixteenth block of 32. Each
// lane has the next four blocks of its warp, up to 64 bytes, under way while it works on the last four, also across
// groups and while x is rounded: with 32 warps that is 64 KiB a processor, which memory needs to be busy.
#include <algorithm>

#include "lamina/ops/activation/activation.cuh"
#include "lamina/ops/linear/quantized_block.cuh"

namespace lamina::ops::cuda {
namespace {

using lamina::cuda::device_data;
using lamina::cuda::DeviceType;
using lamina::cuda::from_float;
using lamina::cuda::kWarp;
using lamina::cuda::to_float;

constexpr int kWarps = 16;
constexpr int kThreads = kWarps * kWarp;
constexpr int kAhead = 4;  // blocks under way
constexpr int kMostRows = 8;
constexpr int64_t kMostShared = 96 * 1024;
constexpr int kBlock = kQuantizedBlock;
constexpr int kRows = kQuantizedRows;

/// x in shared memory: numbers [rows, in + pad], then scales and corrects [blocks, pairs of rows].
struct Rounded {
  int rows, padded, blocks, stride;

  Rounded(int64_t rows_, int64_t blocks_)
      : rows(static_cast<int>(rows_)),
        padded((rows + 1) / 2 * 2),
        blocks(static_cast<int>(blocks_)),
        stride(blocks * kBlock + 16) {}
  static int64_t bytes(int64_t rows, int64_t blocks) {
    return rows * (blocks * kBlock + 16) + 2 * 4 * blocks * ((rows + 1) / 2 * 2);
  }
  __device__ int8_t* numbers(unsigned char* memory) const { return reinterpret_cast<int8_t*>(memory); }
  __device__ float* scales(unsigned char* memory) const { return reinterpret_cast<float*>(memory + rows * stride); }
  __device__ int* corrects(unsigned char* memory) const {
    return reinterpret_cast<int*>(scales(memory) + blocks * padded);
  }
};

template <class T>
__device__ void round_rows(const T* x, int64_t in, int offset, const Rounded& to, unsigned char* memory) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int item = static_cast<int>(threadIdx.x) / kWarp; item < to.padded * to.blocks; item += kWarps) {
    const int row = item / to.blocks;
    const int block = item % to.blocks;
    const int column = block * kBlock + lane;
    const RoundedBlock held = round_block(row < to.rows && column < in ? to_float(x[row * in + column]) : 0.0F);
    if (row < to.rows) to.numbers(memory)[row * to.stride + column] = held.number;
    if (lane != 0) continue;
    to.scales(memory)[block * to.padded + row] = held.scale;
    to.corrects(memory)[block * to.padded + row] = -offset * held.sum;
  }
}

/// Where a warp is: `block` of `group`; moves on by whole steps and over to the block's next group.
struct Place {
  int group, block;
};

template <QuantizedFormat kFormat>
struct Ahead {
  HeldBlock<kFormat> held[kAhead];

  __device__ void load(const QuantizedGroups& weights, int blocks, const Place& at, int lane) {
    const uint8_t* group = weights.data + at.group * weights.group_bytes;
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int block = at.block + i * kWarps;
      const bool real = at.group < weights.groups && block < blocks;
      held[i] = real ? HeldBlock<kFormat>(group, group + weights.scale_bytes, block, lane) : HeldBlock<kFormat>();
    }
  }
};

template <QuantizedFormat kFormat, class T>
__global__ void __launch_bounds__(kThreads, 2)
    few_rows_kernel(const T* x, int64_t in, Rounded rounded, QuantizedGroups weights, const float* bias,
                    Activation function, T* y) {
  extern __shared__ __align__(16) unsigned char memory[];
  __shared__ float shares[kWarps][kMostRows][kRows + 1];
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int g = lane / 4;
  const int pair = lane % 4;
  const int8_t* numbers = rounded.numbers(memory) + g * rounded.stride + pair * 4;
  const float* scales = rounded.scales(memory) + pair * 2;
  const int* corrects = rounded.corrects(memory) + pair * 2;
  const bool real_row = g < rounded.rows;
  const bool real_pair = pair * 2 < rounded.rows;
  Place next{static_cast<int>(blockIdx.x), warp};
  Ahead<kFormat> ahead;
  ahead.load(weights, rounded.blocks, next, lane);
  round_rows(x, in, kFormat == QuantizedFormat::q8 ? 128 : 8, rounded, memory);
  __syncthreads();
  for (int group = static_cast<int>(blockIdx.x); group < weights.groups; group += static_cast<int>(gridDim.x)) {
    float total[4] = {};
    for (int first = warp; first < rounded.blocks; first += kAhead * kWarps) {
      const Ahead<kFormat> now = ahead;
      next.block += kAhead * kWarps;
      if (next.block >= rounded.blocks) next = {group + static_cast<int>(gridDim.x), warp};
      ahead.load(weights, rounded.blocks, next, lane);
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int block = first + i * kWarps;
        if (block >= rounded.blocks) break;
        uint32_t w[4];
        now.held[i].unpack(w);
        const auto* from = reinterpret_cast<const uint32_t*>(numbers + block * kBlock);
        const uint32_t x0 = real_row ? from[0] : 0;
        const uint32_t x1 = real_row ? from[4] : 0;
        const int at = block * rounded.padded;
        const int2 correct = real_pair ? *reinterpret_cast<const int2*>(corrects + at) : make_int2(0, 0);
        const float2 by = real_pair ? *reinterpret_cast<const float2*>(scales + at) : make_float2(0, 0);
        add_block(w, x0, x1, correct, __half22float2(now.held[i].scale), by, total);
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) shares[warp][pair * 2 + i % 2][g * 2 + i / 2] = total[i];
    __syncthreads();
    for (int i = threadIdx.x; i < rounded.rows * kRows; i += kThreads) {
      const int64_t column = int64_t{group} * kRows + i % kRows;
      if (column >= weights.out) continue;
      float sum = 0;
#pragma unroll
      for (int part = 0; part < kWarps; ++part) sum += shares[part][i / kRows][i % kRows];
      if (bias != nullptr) sum += bias[column];
      y[i / kRows * weights.out + column] = from_float<T>(activation_value(function, sum));
    }
    __syncthreads();
  }
}

template <QuantizedFormat kFormat, class T>
void launch(const QuantizedLinear& args, int64_t bytes) {
  using D = DeviceType<T>;
  const Device& device = args.x.device();
  const QuantizedGroups weights(args.weight);
  const Rounded rounded(args.x.dim(0), args.weight.blocks());
  auto* kernel = few_rows_kernel<kFormat, D>;
  LAMINA_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kMostShared)),
              "quantized_linear");
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(weights.groups, 2 * lamina::cuda::processors(device)));
  kernel<<<blocks, kThreads, static_cast<size_t>(bytes), lamina::cuda::stream_of(device)>>>(
      device_data<T>(args.x), args.x.dim(1), rounded, weights, device_data<float>(args.bias), args.activation,
      device_data<T>(args.y));
  lamina::cuda::check_launch("quantized_linear");
}

}  // namespace

bool quantized_few_rows(const QuantizedLinear& args) {
  const int64_t bytes = Rounded::bytes(args.x.dim(0), args.weight.blocks());
  if (args.x.dim(0) > kMostRows || bytes > kMostShared) return false;
  lamina::cuda::visit_floating("quantized_linear", args.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    args.weight.format == QuantizedFormat::q8 ? launch<QuantizedFormat::q8, T>(args, bytes)
                                              : launch<QuantizedFormat::q4, T>(args, bytes);
  });
  return true;
}

}  // namespace lamina::ops::cuda
