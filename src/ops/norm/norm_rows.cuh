#pragma once

// Kernels shared by RMS norm (kCentred false: the mean is not taken off) and layer norm (kCentred true). A group is
// what shares one pair of statistics: a row, or a part of it.
//
// A group is read from memory once, in packs that stay in the registers of a team of threads: some lanes of a warp
// for short groups, a whole block for long ones. The variance is then taken around the mean without another read, so
// the traffic is one read and one write (two each with the residual). Backward is the same with two streams read; there
// the blocks stay: each walks many rows of the same columns and keeps its share of the weight gradients in registers,
// [slots, width] partial sums are written once and added in order. Widths that packs do not fit, odd addresses and
// groups beyond kMostPacks take a block per group that reads again from the caches, element by element.

#include <algorithm>
#include <bit>

#include "lamina/ops/elementwise/reduce.h"
#include "lamina/tensor/cuda/copy.h"
#include "lamina/tensor/cuda/kernel.cuh"

namespace lamina::ops::cuda {

template <class T>
struct NormForwardRows {
  const T* x;
  const T* residual;   ///< or null
  const float* scale;  ///< [width] or null
  const float* bias;   ///< [width] or null
  T* h;                ///< x + residual, or null
  T* y;
  float* mean;  ///< [groups], for kCentred
  float* r;     ///< [groups]
  int64_t groups, group, width;
  float eps;
};

template <class T>
struct NormBackwardRows {
  const T* x;
  const T* dy;
  const T* dh;         ///< or null
  const float* scale;  ///< or null
  const float* mean;
  const float* r;
  T* dx;
  float* dscale;  ///< [slots, width] or null
  float* dbias;   ///< [slots, width] or null
  int64_t rows, group, width;
  int64_t slots;  ///< blocks that share the rows, for each group of a row
};

namespace norm {

using namespace lamina::cuda;  // NOLINT: what kernels share

constexpr int kTeamThreads = 256;   // of a block that holds several teams
constexpr int kBlockThreads = 512;  // of a block that is one team, at most
constexpr int kLoopThreads = 256;   // of a block that reads again

/// `lanes` (a power of two) neighbouring threads of a warp, or the block.
template <bool kBlock>
struct Team {
  int lanes;
  float* scratch;  ///< [64], shared

  __device__ int lane() const { return kBlock ? threadIdx.x : threadIdx.x & (lanes - 1); }
  __device__ int index() const { return kBlock ? 0 : threadIdx.x / lanes; }
  __device__ int count() const { return kBlock ? 1 : blockDim.x / lanes; }
  __device__ float sum(float value) const {
    if constexpr (kBlock) {
      return block_sum(value, scratch);
    } else {
      for (int step = lanes / 2; step > 0; step /= 2) value += __shfl_xor_sync(kAllLanes, value, step);
      return value;
    }
  }
  /// Two sums for one pair of barriers.
  __device__ float2 sum(float2 value) const {
    const int most = kBlock ? kWarp : lanes;
    for (int step = most / 2; step > 0; step /= 2) {
      value.x += __shfl_xor_sync(kAllLanes, value.x, step);
      value.y += __shfl_xor_sync(kAllLanes, value.y, step);
    }
    if constexpr (kBlock) {
      const int lane = threadIdx.x % kWarp;
      if (lane == 0) {
        scratch[threadIdx.x / kWarp] = value.x;
        scratch[kWarp + threadIdx.x / kWarp] = value.y;
      }
      __syncthreads();
      const bool there = lane < static_cast<int>(blockDim.x) / kWarp;
      value.x = warp_sum(there ? scratch[lane] : 0.0F);
      value.y = warp_sum(there ? scratch[kWarp + lane] : 0.0F);
      __syncthreads();
    }
    return value;
  }
};

/// kCount floats, a multiple of four, from an address of whole 16 bytes.
template <int kCount>
__device__ inline void load_floats(const float* from, float (&to)[kCount]) {
#pragma unroll
  for (int j = 0; j < kCount; j += 4) {
    const float4 four = *reinterpret_cast<const float4*>(from + j);
    to[j] = four.x, to[j + 1] = four.y, to[j + 2] = four.z, to[j + 3] = four.w;
  }
}
template <int kCount>
__device__ inline void store_floats(const float (&from)[kCount], float* to) {
#pragma unroll
  for (int j = 0; j < kCount; j += 4) {
    *reinterpret_cast<float4*>(to + j) = make_float4(from[j], from[j + 1], from[j + 2], from[j + 3]);
  }
}

template <class T, bool kCentred, bool kBlock, int kPacks>
__global__ void __launch_bounds__(kBlock ? kBlockThreads : kTeamThreads)
    forward_held(const __grid_constant__ NormForwardRows<T> args, int lanes) {
  constexpr int kSize = Pack<T>::kSize;
  __shared__ float scratch[64];
  const Team<kBlock> team{kBlock ? static_cast<int>(blockDim.x) : lanes, scratch};
  const int64_t g = static_cast<int64_t>(blockIdx.x) * team.count() + team.index();
  const bool valid = g < args.groups;  // all lanes stay for the sums
  const int packs = valid ? static_cast<int>(args.group / kSize) : 0;
  const int64_t at = g * args.group;
  Pack<T> held[kPacks];
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    const int p = team.lane() + k * team.lanes;
    if (p < packs) held[k] = load_pack(args.x + at + p * kSize);
  }
  if (args.residual != nullptr) {
    Pack<T> other[kPacks];
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      const int p = team.lane() + k * team.lanes;
      if (p < packs) other[k] = load_pack(args.residual + at + p * kSize);
    }
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      const int p = team.lane() + k * team.lanes;
      if (p >= packs) continue;
#pragma unroll
      for (int j = 0; j < kSize; ++j) {
        held[k].values[j] = from_float<T>(to_float(held[k].values[j]) + to_float(other[k].values[j]));
      }
      store_pack(args.h + at + p * kSize, held[k]);
    }
  }
  const float count = static_cast<float>(args.group);
  float mean = 0.0F;
  if constexpr (kCentred) {
    float sum = 0.0F;
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      if (team.lane() + k * team.lanes >= packs) continue;
#pragma unroll
      for (int j = 0; j < kSize; ++j) sum += to_float(held[k].values[j]);
    }
    mean = team.sum(sum) / count;
  }
  float squares = 0.0F;
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    if (team.lane() + k * team.lanes >= packs) continue;
#pragma unroll
    for (int j = 0; j < kSize; ++j) {
      const float v = to_float(held[k].values[j]) - mean;
      squares = fmaf(v, v, squares);
    }
  }
  const float r = 1.0F / sqrtf(team.sum(squares) / count + args.eps);
  if (valid && team.lane() == 0) {
    args.r[g] = r;
    if constexpr (kCentred) args.mean[g] = mean;
  }
  const int64_t column = args.group == args.width ? 0 : at % args.width;
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    const int p = team.lane() + k * team.lanes;
    if (p >= packs) continue;
    float v[kSize];
#pragma unroll
    for (int j = 0; j < kSize; ++j) v[j] = (to_float(held[k].values[j]) - mean) * r;
    if (args.scale != nullptr) {
      float scale[kSize];
      load_floats(args.scale + column + p * kSize, scale);
#pragma unroll
      for (int j = 0; j < kSize; ++j) v[j] *= scale[j];
    }
    if (kCentred && args.bias != nullptr) {
      float bias[kSize];
      load_floats(args.bias + column + p * kSize, bias);
#pragma unroll
      for (int j = 0; j < kSize; ++j) v[j] += bias[j];
    }
#pragma unroll
    for (int j = 0; j < kSize; ++j) held[k].values[j] = from_float<T>(v[j]);
    store_pack(args.y + at + p * kSize, held[k]);
  }
}

template <class T, bool kCentred>
__global__ void __launch_bounds__(kLoopThreads) forward_again(const __grid_constant__ NormForwardRows<T> args) {
  __shared__ float scratch[kWarp];
  const float count = static_cast<float>(args.group);
  for (int64_t g = blockIdx.x; g < args.groups; g += gridDim.x) {
    const int64_t at = g * args.group;
    const T* from = (args.h != nullptr ? args.h : args.x) + at;
    float sum = 0.0F;
    float squares = 0.0F;
    for (int64_t i = threadIdx.x; i < args.group; i += kLoopThreads) {
      T v = args.x[at + i];
      if (args.residual != nullptr) {
        v = from_float<T>(to_float(v) + to_float(args.residual[at + i]));
        args.h[at + i] = v;  // read again by this thread alone
      }
      sum += to_float(v);
      squares = fmaf(to_float(v), to_float(v), squares);
    }
    float mean = 0.0F;
    if constexpr (kCentred) {
      mean = block_sum(sum, scratch) / count;
      squares = 0.0F;
      for (int64_t i = threadIdx.x; i < args.group; i += kLoopThreads) {
        const float v = to_float(from[i]) - mean;
        squares = fmaf(v, v, squares);
      }
    }
    const float r = 1.0F / sqrtf(block_sum(squares, scratch) / count + args.eps);
    if (threadIdx.x == 0) {
      args.r[g] = r;
      if constexpr (kCentred) args.mean[g] = mean;
    }
    const int64_t column = at % args.width;
    for (int64_t i = threadIdx.x; i < args.group; i += kLoopThreads) {
      float v = (to_float(from[i]) - mean) * r;
      if (args.scale != nullptr) v *= args.scale[column + i];
      if (args.bias != nullptr) v += args.bias[column + i];
      args.y[at + i] = from_float<T>(v);
    }
  }
}

/// dx = r·(g − mean(g) − x̂·mean(g·x̂)) with g = dy·scale and x̂ = (x − μ)·r; for RMS norm μ = 0 and mean(g) is left out.
/// With c = mean(g·x̂)·r it is r·(g − mean(g) − c·(x − μ)): two numbers to find per group, from Σ g and Σ g·(x − μ).
struct Pull {
  float r, mean, c, mean_g;
};
template <bool kCentred>
__device__ inline Pull make_pull(float r, float mean, float sum_g, float dot, float count) {
  return {r, mean, dot * r * r / count, kCentred ? sum_g / count : 0.0F};
}

template <bool kCentred, class T>
__device__ inline float group_scale(const NormBackwardRows<T>& args, int64_t g) {
  // A single element is its own mean: its gradient is zero, which rounding must not blur.
  return kCentred && args.group == 1 ? 0.0F : args.r[g];
}

/// The weight gradients of the block's teams added in order, one row of `to`.
template <bool kBlock, int kPacks, int kSize>
__device__ inline void put_partial(const Team<kBlock>& team, const float (&sums)[kPacks][kSize], int packs, float* fold,
                                   float* to) {
  if constexpr (kBlock) {
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      const int p = team.lane() + k * team.lanes;
      if (p < packs) store_floats(sums[k], to + p * kSize);
    }
  } else {
    const int group = packs * kSize;
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      const int p = team.lane() + k * team.lanes;
      if (p < packs) store_floats(sums[k], fold + team.index() * group + p * kSize);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < group; i += blockDim.x) {
      float sum = 0.0F;
      for (int t = 0; t < team.count(); ++t) sum += fold[t * group + i];
      to[i] = sum;
    }
    __syncthreads();
  }
}

template <class T, bool kCentred, bool kBlock, int kPacks>
__global__ void __launch_bounds__(kBlock ? kBlockThreads : kTeamThreads)
    backward_held(const __grid_constant__ NormBackwardRows<T> args, int lanes) {
  constexpr int kSize = Pack<T>::kSize;
  __shared__ float scratch[64];
  __shared__ alignas(16) float fold[kBlock ? 4 : kTeamThreads * kPacks * kSize];
  const Team<kBlock> team{kBlock ? static_cast<int>(blockDim.x) : lanes, scratch};
  const int64_t groups = args.width / args.group;  // of a row
  const int64_t slot = blockIdx.x / groups;
  const int64_t in_row = blockIdx.x - slot * groups;
  const int64_t column = in_row * args.group;
  const int packs = static_cast<int>(args.group / kSize);
  const float count = static_cast<float>(args.group);
  float dscale[kPacks][kSize] = {};
  float dbias[kPacks][kSize] = {};
  const int64_t step = args.slots * team.count();
  for (int64_t base = slot * team.count(); base < args.rows; base += step) {
    const int64_t row = base + team.index();
    const int here = row < args.rows ? packs : 0;  // all lanes stay for the sums
    const int64_t at = row * args.width + column;
    Pack<T> x[kPacks];
    Pack<T> dy[kPacks];
    Pack<T> dh[kPacks];
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      const int p = team.lane() + k * team.lanes;
      if (p >= here) continue;
      x[k] = load_pack(args.x + at + p * kSize);
      dy[k] = load_pack(args.dy + at + p * kSize);
      if (args.dh != nullptr) dh[k] = load_pack(args.dh + at + p * kSize);
    }
    const float r = here > 0 ? group_scale<kCentred>(args, row * groups + in_row) : 0.0F;
    const float mean = kCentred && here > 0 ? args.mean[row * groups + in_row] : 0.0F;
    float2 sums = {0.0F, 0.0F};
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      const int p = team.lane() + k * team.lanes;
      if (p >= here) continue;
      float scale[kSize];
      if (args.scale != nullptr) load_floats(args.scale + column + p * kSize, scale);
#pragma unroll
      for (int j = 0; j < kSize; ++j) {
        const float centred = to_float(x[k].values[j]) - mean;
        const float d = to_float(dy[k].values[j]);
        const float g = args.scale != nullptr ? d * scale[j] : d;
        sums.x += g;
        sums.y = fmaf(g, centred, sums.y);
        dscale[k][j] = fmaf(d * centred, r, dscale[k][j]);
        if constexpr (kCentred) dbias[k][j] += d;
      }
    }
    if constexpr (kCentred) {
      sums = team.sum(sums);
    } else {
      sums.y = team.sum(sums.y);
    }
    const Pull pull = make_pull<kCentred>(r, mean, sums.x, sums.y, count);
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      const int p = team.lane() + k * team.lanes;
      if (p >= here) continue;
      float scale[kSize];
      if (args.scale != nullptr) load_floats(args.scale + column + p * kSize, scale);
#pragma unroll
      for (int j = 0; j < kSize; ++j) {
        const float d = to_float(dy[k].values[j]);
        const float g = (args.scale != nullptr ? d * scale[j] : d) - pull.mean_g;
        float dx = fmaf(-pull.c, to_float(x[k].values[j]) - mean, g) * r;
        if (args.dh != nullptr) dx += to_float(dh[k].values[j]);
        x[k].values[j] = from_float<T>(dx);
      }
      store_pack(args.dx + at + p * kSize, x[k]);
    }
  }
  if (args.dscale != nullptr) put_partial(team, dscale, packs, fold, args.dscale + slot * args.width + column);
  if (kCentred && args.dbias != nullptr) {
    put_partial(team, dbias, packs, fold, args.dbias + slot * args.width + column);
  }
}

template <class T, bool kCentred>
__global__ void __launch_bounds__(kLoopThreads)
    backward_again(const __grid_constant__ NormBackwardRows<T> args, int /*lanes*/) {
  __shared__ float scratch[64];
  const Team<true> team{kLoopThreads, scratch};
  const int64_t groups = args.width / args.group;
  const int64_t slot = blockIdx.x / groups;
  const int64_t in_row = blockIdx.x - slot * groups;
  const int64_t column = in_row * args.group;
  const int64_t partial = slot * args.width + column;
  for (int64_t row = slot; row < args.rows; row += args.slots) {
    const int64_t at = row * args.width + column;
    const float r = group_scale<kCentred>(args, row * groups + in_row);
    const float mean = kCentred ? args.mean[row * groups + in_row] : 0.0F;
    const auto grad = [&](int64_t i) {
      const float d = to_float(args.dy[at + i]);
      return args.scale != nullptr ? d * args.scale[column + i] : d;
    };
    float2 sums = {0.0F, 0.0F};
    for (int64_t i = threadIdx.x; i < args.group; i += kLoopThreads) {
      const float centred = to_float(args.x[at + i]) - mean;
      const float d = to_float(args.dy[at + i]);
      sums.x += grad(i);
      sums.y = fmaf(grad(i), centred, sums.y);
      // A thread meets its own columns alone: the partial sums in memory are its registers.
      if (args.dscale != nullptr) {
        args.dscale[partial + i] = fmaf(d * centred, r, row == slot ? 0.0F : args.dscale[partial + i]);
      }
      if (args.dbias != nullptr) args.dbias[partial + i] = (row == slot ? 0.0F : args.dbias[partial + i]) + d;
    }
    sums = team.sum(sums);
    const Pull pull = make_pull<kCentred>(r, mean, sums.x, sums.y, static_cast<float>(args.group));
    for (int64_t i = threadIdx.x; i < args.group; i += kLoopThreads) {
      float dx = fmaf(-pull.c, to_float(args.x[at + i]) - mean, grad(i) - pull.mean_g) * r;
      if (args.dh != nullptr) dx += to_float(args.dh[at + i]);
      args.dx[at + i] = from_float<T>(dx);
    }
  }
}

/// How a group of `packs` packs is held: by `threads` threads of a block in teams of `lanes`, or by all of them.
struct Layout {
  int threads;
  int lanes;
  bool block;
  int packs;  ///< per thread, at most
};
inline Layout layout_of(int64_t packs) {
  if (packs <= 2 * kWarp) {
    const auto lanes = std::bit_ceil(static_cast<unsigned>(std::min<int64_t>(packs, kWarp)));
    return {kTeamThreads, static_cast<int>(lanes), false, 2};
  }
  const int most = packs <= 2 * kBlockThreads ? 2 : 4;
  const int64_t threads = (packs + most - 1) / most;
  return {static_cast<int>((threads + kWarp - 1) / kWarp * kWarp), 0, true, most};
}
constexpr int64_t kMostPacks = 4 * kBlockThreads;

template <class T>
bool can_hold(int64_t group, std::initializer_list<const void*> pointers) {
  if (group % Pack<T>::kSize != 0 || group / Pack<T>::kSize > kMostPacks) return false;
  return std::all_of(pointers.begin(), pointers.end(),
                     [](const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; });
}

template <bool kCentred, class T>
void run_forward(const char* op, const Device& device, const NormForwardRows<T>& args) {
  if (args.groups == 0) return;
  const cudaStream_t stream = stream_of(device);
  if (!can_hold<T>(args.group, {args.x, args.residual, args.scale, args.bias, args.h, args.y})) {
    forward_again<T, kCentred><<<blocks_for(args.groups, 1), kLoopThreads, 0, stream>>>(args);
  } else {
    const Layout layout = layout_of(args.group / Pack<T>::kSize);
    const int blocks = blocks_for(args.groups, layout.block ? 1 : layout.threads / layout.lanes);
    if (!layout.block) {
      forward_held<T, kCentred, false, 2><<<blocks, layout.threads, 0, stream>>>(args, layout.lanes);
    } else if (layout.packs == 2) {
      forward_held<T, kCentred, true, 2><<<blocks, layout.threads, 0, stream>>>(args, 0);
    } else {
      forward_held<T, kCentred, true, 4><<<blocks, layout.threads, 0, stream>>>(args, 0);
    }
  }
  check_launch(op);
}

/// A wave of blocks that stay, as the kernel's registers allow, shared by the groups of a row.
template <class Kernel>
int64_t slots_for(Kernel kernel, int threads, const Device& device, int64_t groups, int64_t tasks) {
  int resident = 1;
  LAMINA_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, threads, 0), "norm");
  const int64_t wave = static_cast<int64_t>(std::max(resident, 1)) * processors(device);
  return std::clamp<int64_t>(wave / groups, 1, tasks);
}

/// What the partial sums of the weight gradients become.
struct WeightGradients {
  Tensor dscale;  ///< [width], or undefined
  Tensor dbias;
};

template <class T>
using BackwardKernel = void (*)(NormBackwardRows<T>, int);

template <bool kCentred, class T>
BackwardKernel<T> backward_kernel(const Layout& layout) {
  if (layout.packs == 1) return backward_again<T, kCentred>;
  if (!layout.block) return backward_held<T, kCentred, false, 2>;
  return layout.packs == 2 ? backward_held<T, kCentred, true, 2> : backward_held<T, kCentred, true, 4>;
}

template <bool kCentred, class T>
void run_backward(const char* op, const Device& device, NormBackwardRows<T> args, const WeightGradients& to) {
  if (args.rows == 0 || args.width == 0) {
    for (Tensor total : {to.dscale, to.dbias}) {
      if (total.defined()) lamina::cuda::fill(total, 0.0);
    }
    return;
  }
  const bool held = can_hold<T>(args.group, {args.x, args.dy, args.dh, args.scale, args.dx});
  const Layout layout = held ? layout_of(args.group / Pack<T>::kSize) : Layout{kLoopThreads, 0, true, 1};
  const BackwardKernel<T> kernel = backward_kernel<kCentred, T>(layout);
  const int64_t groups = args.width / args.group;
  const int64_t teams = layout.block ? 1 : layout.threads / layout.lanes;
  const int64_t slots = slots_for(kernel, layout.threads, device, groups, (args.rows + teams - 1) / teams);
  const int64_t width = args.width;
  const Shape partial{slots, width};
  Tensor dscale;
  Tensor dbias;
  if (to.dscale.defined()) dscale = Tensor::empty(partial, DType::f32, device);
  if (to.dbias.defined()) dbias = Tensor::empty(partial, DType::f32, device);
  args.slots = slots;
  args.dscale = device_data<float>(dscale);
  args.dbias = device_data<float>(dbias);
  const auto blocks = static_cast<unsigned>(slots * groups);
  kernel<<<blocks, layout.threads, 0, stream_of(device)>>>(args, layout.lanes);
  check_launch(op);
  if (dscale.defined()) reduce_middle(ReduceMiddle{dscale, 1, slots, width, 1.0, to.dscale});
  if (dbias.defined()) reduce_middle(ReduceMiddle{dbias, 1, slots, width, 1.0, to.dbias});
}

}  // namespace norm
}  // namespace lamina::ops::cuda
