// Grouped GEMM: one launch for all experts. A block finds its rows from the offsets on the device. So the host need not
// know the routing, and the step can be captured as a CUDA graph. The grid is large enough for every possible routing;
// blocks without rows return at once.
//
// 16-bit operands use tensor cores: grouped_wgmma.cuh on compute capability 9.0; grouped_mma.cuh on other GPUs and for
// unaligned widths. f32 uses 64 × 64 tiles of FMAs. Every result is summed by one block in a fixed order.
#include <algorithm>

#include "lamina/ops/linear/fused/tile_product.cuh"
#include "lamina/ops/moe/grouped_linear_kernel.h"
#include "lamina/ops/moe/grouped_mma.cuh"
#include "lamina/ops/moe/grouped_wgmma.h"

namespace lamina::ops::cuda {
namespace {

using lamina::cuda::check_launch;
using lamina::cuda::device_data;
using lamina::cuda::DeviceType;
using lamina::cuda::kWarp;
using lamina::cuda::stream_of;
using lamina::cuda::to_float;

constexpr const char* kOp = "grouped_linear";

struct Experts {
  const int64_t* offsets;
  int64_t experts, slots;
};

/// Forward and dx: rows [slots, depth] times a matrix of the expert. y[r] = weight[e] · x[r] + bias[e], or dx[r] =
/// dy[r] · weight[e].
template <class T>
struct RowProduct {
  const T* rows;    // [slots, depth]
  const T* weight;  // [experts, width, depth], or [experts, depth, width] if the rows are gradients
  const float* bias;
  T* result;  // [slots, width]
  int64_t depth, width;
};

template <bool kGradient>
__global__ void __launch_bounds__(kTileThreads) rows_f32_kernel(Experts e, RowProduct<float> p) {
  __shared__ TileMemory memory;
  const RowTile tile = find_row_tile(e.offsets, e.experts, e.slots, blockIdx.x, kTile);
  if (tile.expert < 0) return;
  const int64_t column = blockIdx.y * int64_t{kTile};
  const float* weight = p.weight + tile.expert * p.depth * p.width;
  float acc[4][4] = {};
  tile_product<true, !kGradient>(
      p.depth,
      [&](int i, int64_t k) { return tile.begin + i < tile.end ? p.rows[(tile.begin + i) * p.depth + k] : 0.0F; },
      [&](int64_t k, int j) {
        if (column + j >= p.width) return 0.0F;
        return kGradient ? weight[k * p.width + column + j] : weight[(column + j) * p.depth + k];
      },
      memory, acc);
  for (int r = 0; r < 4; ++r) {
    const int64_t row = tile.begin + tile_row() + r;
    if (row >= tile.end) break;
    for (int c = 0; c < 4; ++c) {
      const int64_t j = column + tile_column() + c;
      if (j >= p.width) break;
      p.result[row * p.width + j] = acc[r][c] + (p.bias != nullptr ? p.bias[tile.expert * p.width + j] : 0.0F);
    }
  }
}

template <bool kGradient, class T>
__global__ void __launch_bounds__(kMmaThreads)
    rows_mma_kernel(Experts e, RowProduct<T> p, bool rows_packed, bool weight_packed) {
  extern __shared__ __align__(128) unsigned char memory[];
  const RowTile tile = find_row_tile(e.offsets, e.experts, e.slots, blockIdx.x, kMmaTile);
  if (tile.expert < 0) return;
  const int64_t column = blockIdx.y * int64_t{kMmaTile};
  const T* weight = p.weight + tile.expert * p.depth * p.width;
  const MmaOperand<T> a{p.rows, tile.end, p.depth, p.depth, rows_packed};
  const MmaOperand<T> b = kGradient ? MmaOperand<T>{weight, p.depth, p.width, p.width, weight_packed}
                                    : MmaOperand<T>{weight, p.width, p.depth, p.depth, weight_packed};
  const MmaResult<T> result{p.result + tile.begin * p.width + column,
                            tile.end - tile.begin,
                            p.width - column,
                            p.width,
                            p.bias != nullptr ? p.bias + tile.expert * p.width + column : nullptr,
                            false};
  mma_block<true, !kGradient>(a, b, tile.begin, column, p.depth, memory, result);
}

/// Weight gradient: dweight[e] = dyᵀ · x over the expert's rows.
template <class T>
struct WeightProduct {
  const T *dy, *x;
  float* dweight;
  int64_t out, in;
  bool accumulate;
};

__global__ void __launch_bounds__(kTileThreads) weight_f32_kernel(Experts e, WeightProduct<float> p) {
  __shared__ TileMemory memory;
  const RowTile rows = expert_rows(e.offsets, e.experts, e.slots, blockIdx.z);
  const int64_t o = blockIdx.y * int64_t{kTile};
  const int64_t column = blockIdx.x * int64_t{kTile};
  float acc[4][4] = {};
  tile_product<false, false>(
      rows.end - rows.begin,
      [&](int i, int64_t k) { return o + i < p.out ? p.dy[(rows.begin + k) * p.out + o + i] : 0.0F; },
      [&](int64_t k, int j) { return column + j < p.in ? p.x[(rows.begin + k) * p.in + column + j] : 0.0F; }, memory,
      acc);
  for (int r = 0; r < 4; ++r) {
    const int64_t i = o + tile_row() + r;
    if (i >= p.out) break;
    for (int c = 0; c < 4; ++c) {
      const int64_t j = column + tile_column() + c;
      if (j >= p.in) break;
      float& target = p.dweight[(rows.expert * p.out + i) * p.in + j];
      target = p.accumulate ? target + acc[r][c] : acc[r][c];
    }
  }
}

template <class T>
__global__ void __launch_bounds__(kMmaThreads)
    weight_mma_kernel(Experts e, WeightProduct<T> p, bool dy_packed, bool x_packed) {
  extern __shared__ __align__(128) unsigned char memory[];
  const RowTile rows = expert_rows(e.offsets, e.experts, e.slots, blockIdx.z);
  const int64_t o = blockIdx.y * int64_t{kMmaTile};
  const int64_t column = blockIdx.x * int64_t{kMmaTile};
  const int64_t count = rows.end - rows.begin;
  const MmaOperand<T> a{p.dy + rows.begin * p.out, count, p.out, p.out, dy_packed};
  const MmaOperand<T> b{p.x + rows.begin * p.in, count, p.in, p.in, x_packed};
  const MmaResult<float> result{
      p.dweight + (rows.expert * p.out + o) * p.in + column, p.out - o, p.in - column, p.in, nullptr, p.accumulate};
  mma_block<false, false>(a, b, o, column, count, memory, result);
}

/// Zeroes the rows that belong to no expert. `faults` is null if the offsets were already checked.
template <class T>
__global__ void clear_outside_kernel(Experts e, T* rows, int64_t width, lamina::cuda::FaultSlot* faults) {
  const int64_t tid = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  const int64_t threads = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = tid; faults != nullptr && i <= e.experts; i += threads) {
    const int64_t before = i > 0 ? e.offsets[i - 1] : 0;
    if (e.offsets[i] < before || e.offsets[i] > e.slots) {
      lamina::cuda::report(faults, lamina::cuda::Fault::expert, e.offsets[i]);
    }
  }
  const int64_t begin = min(max(e.offsets[0], int64_t{0}), e.slots);
  const int64_t end = min(max(e.offsets[e.experts], begin), e.slots);
  const int64_t outside = (begin + e.slots - end) * width;
  for (int64_t i = tid; i < outside; i += threads) {
    const int64_t at = i < begin * width ? i : i - begin * width + end * width;
    rows[at] = lamina::cuda::from_float<T>(0.0F);
  }
}

/// dbias[e] = Σ_rows dy. A block handles 32 features; each of its warps sums every eighth row.
template <class T>
__global__ void __launch_bounds__(256) bias_kernel(Experts e, const T* dy, float* dbias, int64_t out) {
  __shared__ float shares[8][kWarp];
  const RowTile rows = expert_rows(e.offsets, e.experts, e.slots, blockIdx.y);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t feature = blockIdx.x * int64_t{kWarp} + lane;
  float sum = 0;
#pragma unroll 4
  for (int64_t row = rows.begin + warp; row < rows.end; row += 8) {
    if (feature < out) sum += to_float(dy[row * out + feature]);
  }
  shares[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || feature >= out) return;
  float total = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) total += shares[i][lane];
  dbias[rows.expert * out + feature] = total;
}

template <class T>
void clear_outside(const Device& device, const Experts& e, T* rows, int64_t width, bool check) {
  constexpr int kThreads = 256;
  const int blocks = std::min(lamina::cuda::blocks_for(e.slots * width, 8 * kThreads), lamina::cuda::sm_count(device));
  clear_outside_kernel<<<blocks, kThreads, 0, stream_of(device)>>>(e, rows, width,
                                                                   check ? lamina::cuda::fault_slot(device) : nullptr);
  check_launch(kOp);
}

unsigned tiles(int64_t extent, int64_t tile) { return static_cast<unsigned>((extent + tile - 1) / tile); }

template <bool kGradient, class T>
void multiply_rows(const Device& device, const Experts& e, const RowProduct<T>& p) {
  if (e.slots * p.width == 0) return;
  clear_outside(device, e, p.result, p.width, !kGradient);
  const cudaStream_t stream = stream_of(device);
  if constexpr (std::is_same_v<T, float>) {
    const dim3 grid(static_cast<unsigned>(row_tiles(e.slots, e.experts, kTile)), tiles(p.width, kTile));
    rows_f32_kernel<kGradient><<<grid, kTileThreads, 0, stream>>>(e, p);
  } else {
    const wgmma::Product product{e.offsets, e.experts, e.slots, p.depth, 0, p.width, p.bias, p.result, false};
    constexpr auto kForm = kGradient ? wgmma::Form::gradient : wgmma::Form::rows;
    if (wgmma::multiply(device, kForm, p.rows, p.weight, product)) return;
    const dim3 grid(static_cast<unsigned>(row_tiles(e.slots, e.experts, kMmaTile)), tiles(p.width, kMmaTile));
    auto* kernel = rows_mma_kernel<kGradient, T>;
    LAMINA_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kMmaBytes)),
                kOp);
    kernel<<<grid, kMmaThreads, kMmaBytes, stream>>>(e, p, in_packs<T>(p.rows, p.depth),
                                                     in_packs<T>(p.weight, p.depth) && in_packs<T>(p.weight, p.width));
  }
  check_launch(kOp);
}

template <class T>
void multiply_weights(const Device& device, const Experts& e, const WeightProduct<T>& p) {
  if (e.experts * p.out * p.in == 0) return;
  const cudaStream_t stream = stream_of(device);
  if constexpr (std::is_same_v<T, float>) {
    const dim3 grid(tiles(p.in, kTile), tiles(p.out, kTile), static_cast<unsigned>(e.experts));
    weight_f32_kernel<<<grid, kTileThreads, 0, stream>>>(e, p);
  } else {
    const wgmma::Product product{e.offsets, e.experts, e.slots, 0, p.out, p.in, nullptr, p.dweight, p.accumulate};
    if (wgmma::multiply(device, wgmma::Form::weights, p.dy, p.x, product)) return;
    const dim3 grid(tiles(p.in, kMmaTile), tiles(p.out, kMmaTile), static_cast<unsigned>(e.experts));
    auto* kernel = weight_mma_kernel<T>;
    LAMINA_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kMmaBytes)),
                kOp);
    kernel<<<grid, kMmaThreads, kMmaBytes, stream>>>(e, p, in_packs<T>(p.dy, p.out), in_packs<T>(p.x, p.in));
  }
  check_launch(kOp);
}

template <class T>
void backward(const GroupedLinearBackward& args) {
  using D = DeviceType<T>;
  const Device& device = args.x.device();
  const int64_t out = args.weight.dim(1);
  const int64_t in = args.weight.dim(2);
  const Experts e{args.offsets.data<int64_t>(), args.weight.dim(0), args.x.dim(0)};
  const D* dy = device_data<T>(args.dy);
  if (args.dx.defined()) {
    multiply_rows<true>(device, e,
                        RowProduct<D>{dy, device_data<T>(args.weight), nullptr, device_data<T>(args.dx), out, in});
  }
  if (args.dweight.defined()) {
    multiply_weights(
        device, e, WeightProduct<D>{dy, device_data<T>(args.x), args.dweight.data<float>(), out, in, args.accumulate});
  }
  if (args.dbias.defined() && args.dbias.numel() > 0) {
    const dim3 grid(tiles(out, kWarp), static_cast<unsigned>(e.experts));
    bias_kernel<D><<<grid, 256, 0, stream_of(device)>>>(e, dy, args.dbias.data<float>(), out);
    check_launch(kOp);
  }
}

}  // namespace

void grouped_linear_forward(const GroupedLinearForward& args) {
  const Experts e{args.offsets.data<int64_t>(), args.weight.dim(0), args.x.dim(0)};
  lamina::cuda::visit_floating(kOp, args.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    multiply_rows<false>(
        args.x.device(), e,
        RowProduct<DeviceType<T>>{device_data<T>(args.x), device_data<T>(args.weight), device_data<float>(args.bias),
                                  device_data<T>(args.y), args.weight.dim(2), args.weight.dim(1)});
  });
}

void grouped_linear_backward(const GroupedLinearBackward& args) {
  lamina::cuda::visit_floating(kOp, args.x.dtype(), [&](auto tag) { backward<typename decltype(tag)::type>(args); });
}

}  // namespace lamina::ops::cuda
