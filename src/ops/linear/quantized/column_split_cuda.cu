// Products of 9 to 64 16-bit rows of x with a quantized weight. They are limited by reading the weight once, and by
// reading x from the L2 cache once per thread block.
//
// A block takes one or two groups of 16 weight rows and all rows of x. Its eight warps split the columns: each takes
// every eighth block of 32. The numbers of a weight block become a 16-bit left operand in registers (dequantize.cuh),
// and x is read in the order of the right operand. So only the sums of the warps pass through shared memory, at the
// end. x is not quantized. Loads are one iteration ahead.
//
// The kernel uses programmatic dependent launch. Its first weights are loaded before the wait for the previous kernel,
// as in weight_stream_cuda.cu.
#include "lamina/ops/activation/activation.cuh"
#include "lamina/ops/linear/quantized/dequantize.cuh"

namespace lamina::ops::cuda {
namespace {

using namespace lamina::cuda;  // NOLINT: kernel helpers

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;
constexpr int kMostRows = 64;

struct ColumnSplit {
  const void* x;  ///< [rows, in]
  QuantizedGroups weights;
  const float* bias;  ///< [out], or null
  void* y;            ///< [rows, out]
  int in, rows;
  int blocks;  ///< number of blocks of 32 columns
  Activation activation;
};

/// A lane's part of one block of columns of the weight, for kGroups groups of weight rows.
template <QuantizedFormat kFormat, int kGroups>
struct WeightLoad {
  uint2 first[kGroups], second[kGroups];
  __half2 scale[kGroups];

  __device__ void load(const ColumnSplit& p, int64_t group, int block, int lane) {
#pragma unroll
    for (int n = 0; n < kGroups; ++n) {
      if (block >= p.blocks || group + n >= p.weights.groups) continue;
      const uint8_t* at = p.weights.data + (group + n) * p.weights.group_bytes;
      const HeldBlock<kFormat> held(at, at + p.weights.scale_bytes, block, lane);
      first[n] = held.first;
      second[n] = held.second;
      scale[n] = held.scale;
    }
  }
};

/// A lane's part of one block of columns of x, as right operands: row lane / 4 of each tile of eight rows.
template <class T, int kTiles>
struct RowLoad {
  uint2 steps[kTiles][2];

  __device__ void load(const ColumnSplit& p, int block, int lane) {
    const int column = block * kQuantizedBlock + lane % 4 * 4;
    const T* from = static_cast<const T*>(p.x) + static_cast<int64_t>(lane / 4) * p.in + column;
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int s = 0; s < 2; ++s) {
        const bool there = t * 8 + lane / 4 < p.rows && column + 16 * s < p.in;
        steps[t][s] = make_uint2(0, 0);
        if (there)
          steps[t][s] = __ldg(reinterpret_cast<const uint2*>(from + static_cast<int64_t>(t) * 8 * p.in + 16 * s));
      }
    }
  }
};

template <QuantizedFormat kFormat, class T, int kGroups, int kTiles>
__global__ void __launch_bounds__(kThreads, 2) column_split_kernel(const __grid_constant__ ColumnSplit p) {
  constexpr int kOutputs = kGroups * kQuantizedRows;
  __shared__ float sums[kWarps][kTiles * 8][kOutputs + 1];
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t group = int64_t{blockIdx.x} * kGroups;
  WeightLoad<kFormat, kGroups> weights;
  RowLoad<T, kTiles> rows;
  weights.load(p, group, warp, lane);
  grid_dependency_wait();
  if (warp < p.blocks) rows.load(p, warp, lane);
  float total[kGroups][kTiles][4] = {};
#pragma unroll 1
  for (int block = warp; block < p.blocks; block += kWarps) {
    WeightLoad<kFormat, kGroups> next_weights = weights;
    RowLoad<T, kTiles> next_rows = rows;
    if (block + kWarps < p.blocks) {
      next_weights.load(p, group, block + kWarps, lane);
      next_rows.load(p, block + kWarps, lane);
    }
#pragma unroll
    for (int n = 0; n < kGroups; ++n) {
      uint32_t a[2][4];
      unpack_block<kFormat, T>(weights.first[n], weights.second[n], a);
      const float2 scale = __half22float2(weights.scale[n]);
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        float found[4] = {};
#pragma unroll
        for (int s = 0; s < 2; ++s) mma_m16n8k16<T>(found, a[s], rows.steps[t][s].x, rows.steps[t][s].y);
#pragma unroll
        for (int i = 0; i < 4; ++i) total[n][t][i] = fmaf(found[i], i < 2 ? scale.x : scale.y, total[n][t][i]);
      }
    }
    weights = next_weights;
    rows = next_rows;
  }
#pragma unroll
  for (int n = 0; n < kGroups; ++n) {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        sums[warp][t * 8 + lane % 4 * 2 + i % 2][n * kQuantizedRows + lane / 4 * 2 + i / 2] = total[n][t][i];
      }
    }
  }
  __syncthreads();
  for (int item = static_cast<int>(threadIdx.x); item < p.rows * kOutputs; item += kThreads) {
    const int row = item / kOutputs;
    const int64_t column = group * kQuantizedRows + item % kOutputs;
    if (column >= p.weights.out) continue;
    float sum = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) sum += sums[w][row][item % kOutputs];
    if (p.bias != nullptr) sum += p.bias[column];
    static_cast<T*>(p.y)[row * p.weights.out + column] = from_float<T>(activation_value(p.activation, sum));
  }
}

template <QuantizedFormat kFormat, class T, int kGroups, int kTiles>
void launch(const Device& device, const ColumnSplit& p) {
  const auto blocks = static_cast<unsigned>((p.weights.groups + kGroups - 1) / kGroups);
  launch_dependent(column_split_kernel<kFormat, T, kGroups, kTiles>, dim3(blocks), dim3(kThreads), 0, device, p);
  check_launch("quantized_linear");
}

/// With two groups per block, x is read half as often. Used if there are still enough blocks for all SMs.
template <QuantizedFormat kFormat, class T>
void launch_sizes(const Device& device, const ColumnSplit& p) {
  const bool two = p.weights.groups >= 3 * sm_count(device);
  if (p.rows <= 16) return two ? launch<kFormat, T, 2, 2>(device, p) : launch<kFormat, T, 1, 2>(device, p);
  if (p.rows <= 32) return two ? launch<kFormat, T, 2, 4>(device, p) : launch<kFormat, T, 1, 4>(device, p);
  launch<kFormat, T, 1, 8>(device, p);
}

template <class T>
void launch_format(const Device& device, QuantizedFormat format, const ColumnSplit& p) {
  format == QuantizedFormat::q8 ? launch_sizes<QuantizedFormat::q8, T>(device, p)
                                : launch_sizes<QuantizedFormat::q4, T>(device, p);
}

}  // namespace

bool quantized_column_split(const QuantizedLinear& args) {
  const Device& device = args.x.device();
  const DType type = args.x.dtype();
  const bool fits = (type == DType::bf16 || type == DType::f16) && args.x.dim(0) <= kMostRows && args.weight.in > 0 &&
                    args.weight.in % 4 == 0 && args.weight.in <= int64_t{1} << 30 &&
                    reinterpret_cast<uintptr_t>(args.x.raw()) % 8 == 0;
  if (!fits) return false;
  const ColumnSplit p{.x = args.x.raw(),
                      .weights = QuantizedGroups(args.weight),
                      .bias = device_data<float>(args.bias),
                      .y = args.y.raw(),
                      .in = static_cast<int>(args.weight.in),
                      .rows = static_cast<int>(args.x.dim(0)),
                      .blocks = static_cast<int>(args.weight.blocks()),
                      .activation = args.activation};
  type == DType::bf16 ? launch_format<__nv_bfloat16>(device, args.weight.format, p)
                      : launch_format<__half>(device, args.weight.format, p);
  return true;
}

}  // namespace lamina::ops::cuda
