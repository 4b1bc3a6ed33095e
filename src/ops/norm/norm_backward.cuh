#pragma once

// The strategy stands in norm_rows.cuh.

#include "lamina/ops/elementwise/reduce.h"
#include "lamina/ops/norm/norm_rows.cuh"
#include "lamina/tensor/cuda/copy.h"

namespace lamina::ops::cuda::norm {

template <class T>
struct BackwardRows {
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

/// The rows of a block: its slot of them, at one group's columns.
struct Place {
  int64_t groups;  ///< of a row
  int64_t slot;
  int64_t in_row;
  int64_t column;

  template <class T>
  __device__ explicit Place(const BackwardRows<T>& args)
      : groups(args.width / args.group),
        slot(blockIdx.x / groups),
        in_row(blockIdx.x - slot * groups),
        column(in_row * args.group) {}
};

/// dx = r·(g − mean(g) − x̂·mean(g·x̂)) with g = dy·scale and x̂ = (x − μ)·r; for RMS norm μ = 0 and mean(g) is left out.
/// With c = mean(g·x̂)·r it is r·(g − mean(g) − c·(x − μ)): two numbers to find per group, from Σ g and Σ g·(x − μ).
struct Pull {
  float r = 0.0F;
  float mean = 0.0F;
  float c = 0.0F;
  float mean_g = 0.0F;

  __device__ float operator()(float x, float g) const { return fmaf(-c, x - mean, g - mean_g) * r; }
};

/// What forward has kept of group `g`.
template <bool kCentred, class T>
__device__ inline Pull kept_of(const BackwardRows<T>& args, int64_t g) {
  Pull pull;
  // A single element is its own mean: its gradient is zero, which rounding must not blur.
  pull.r = kCentred && args.group == 1 ? 0.0F : args.r[g];
  if (kCentred) pull.mean = args.mean[g];
  return pull;
}

/// Adds Σ g (x) and Σ g·(x − μ) (y) of the whole team.
template <bool kCentred, bool kBlock>
__device__ inline void find_pull(Pull& pull, const Team<kBlock>& team, float2 sums, int64_t group) {
  const float count = static_cast<float>(group);
  if constexpr (kCentred) {
    sums = team.sum(sums);
    pull.mean_g = sums.x / count;
  } else {
    sums.y = team.sum(sums.y);
  }
  pull.c = sums.y * pull.r * pull.r / count;
}

/// The weight gradients of the block's teams added in order, one row of `to`.
template <bool kBlock, int kPacks, int kSize>
__device__ inline void put_partial(const Team<kBlock>& team, const float (&sums)[kPacks][kSize], int packs, float* fold,
                                   float* to) {
  if constexpr (kBlock) {
    team.template each<kPacks>(packs, [&](int k, int p) { store_floats(sums[k], to + p * kSize); });
  } else {
    const int group = packs * kSize;
    float* mine = fold + team.index() * group;
    team.template each<kPacks>(packs, [&](int k, int p) { store_floats(sums[k], mine + p * kSize); });
    __syncthreads();
    for (int i = threadIdx.x; i < group; i += blockDim.x) {
      float sum = 0.0F;
      for (int t = 0; t < team.count(); ++t) sum += fold[t * group + i];
      to[i] = sum;
    }
    __syncthreads();
  }
}

/// dy · scale of one pack.
template <class T, int kSize>
__device__ inline void load_scaled(const BackwardRows<T>& args, const Pack<T>& dy, int64_t column, float (&g)[kSize]) {
#pragma unroll
  for (int j = 0; j < kSize; ++j) g[j] = to_float(dy.values[j]);
  if (args.scale == nullptr) return;
  float scale[kSize];
  load_floats(args.scale + column, scale);
#pragma unroll
  for (int j = 0; j < kSize; ++j) g[j] *= scale[j];
}

/// Registers of a thread: blocks of kBlockThreads must fit, and three of 256 threads share a multiprocessor where the
/// sums leave room for it, so that one reads while the others add.
template <bool kCentred, bool kBlock, int kPacks>
inline constexpr int kRegisters = !kBlock || kPacks > 2 ? 128
                                  : kCentred            ? 104
                                                        : 80;

template <class T, bool kCentred, bool kBlock, int kPacks>
__global__ void __maxnreg__((kRegisters<kCentred, kBlock, kPacks>))
    backward_held(const __grid_constant__ BackwardRows<T> args, int lanes) {
  constexpr int kSize = Pack<T>::kSize;
  __shared__ float scratch[64];
  __shared__ alignas(16) float fold[kBlock ? 4 : kTeamThreads * kPacks * kSize];
  const Team<kBlock> team(lanes, scratch);
  const Place place(args);
  const int packs = static_cast<int>(args.group / kSize);
  float dscale[kPacks][kSize] = {};
  float dbias[kPacks][kSize] = {};
  const int64_t step = args.slots * team.count();
  for (int64_t base = place.slot * team.count(); base < args.rows; base += step) {
    const int64_t row = base + team.index();
    const int here = row < args.rows ? packs : 0;  // all lanes stay for the sums
    const int64_t at = row * args.width + place.column;
    Pack<T> x[kPacks];
    Pack<T> dy[kPacks];
    Pack<T> dh[kPacks];
    team.template each<kPacks>(here, [&](int k, int p) {
      x[k] = load_pack(args.x + at + p * kSize);
      dy[k] = load_pack(args.dy + at + p * kSize);
      if (args.dh != nullptr) dh[k] = load_pack(args.dh + at + p * kSize);
    });
    Pull pull;
    if (here > 0) pull = kept_of<kCentred>(args, row * place.groups + place.in_row);
    float2 sums = {0.0F, 0.0F};
    team.template each<kPacks>(here, [&](int k, int p) {
      float g[kSize];
      load_scaled(args, dy[k], place.column + p * kSize, g);
#pragma unroll
      for (int j = 0; j < kSize; ++j) {
        const float centred = to_float(x[k].values[j]) - pull.mean;
        const float d = to_float(dy[k].values[j]);
        sums.x += g[j];
        sums.y = fmaf(g[j], centred, sums.y);
        dscale[k][j] = fmaf(d * centred, pull.r, dscale[k][j]);
        if constexpr (kCentred) dbias[k][j] += d;
      }
    });
    find_pull<kCentred>(pull, team, sums, args.group);
    team.template each<kPacks>(here, [&](int k, int p) {
      float g[kSize];
      load_scaled(args, dy[k], place.column + p * kSize, g);
#pragma unroll
      for (int j = 0; j < kSize; ++j) {
        float dx = pull(to_float(x[k].values[j]), g[j]);
        if (args.dh != nullptr) dx += to_float(dh[k].values[j]);
        x[k].values[j] = from_float<T>(dx);
      }
      store_pack(args.dx + at + p * kSize, x[k]);
    });
  }
  const int64_t partial = place.slot * args.width + place.column;
  if (args.dscale != nullptr) put_partial(team, dscale, packs, fold, args.dscale + partial);
  if (kCentred && args.dbias != nullptr) put_partial(team, dbias, packs, fold, args.dbias + partial);
}

template <class T, bool kCentred>
__global__ void __launch_bounds__(kLoopThreads)
    backward_again(const __grid_constant__ BackwardRows<T> args, int /*lanes*/) {
  __shared__ float scratch[64];
  const Team<true> team(0, scratch);
  const Place place(args);
  const int64_t partial = place.slot * args.width + place.column;
  for (int64_t row = place.slot; row < args.rows; row += args.slots) {
    const int64_t at = row * args.width + place.column;
    const bool first = row == place.slot;
    Pull pull = kept_of<kCentred>(args, row * place.groups + place.in_row);
    const auto grad = [&](int64_t i) {
      const float d = to_float(args.dy[at + i]);
      return args.scale != nullptr ? d * args.scale[place.column + i] : d;
    };
    float2 sums = {0.0F, 0.0F};
    for (int64_t i = threadIdx.x; i < args.group; i += kLoopThreads) {
      const float centred = to_float(args.x[at + i]) - pull.mean;
      const float d = to_float(args.dy[at + i]);
      sums.x += grad(i);
      sums.y = fmaf(grad(i), centred, sums.y);
      // A thread meets its own columns alone: the partial sums in memory are its registers.
      float* dscale = args.dscale + partial + i;
      float* dbias = args.dbias + partial + i;
      if (args.dscale != nullptr) *dscale = fmaf(d * centred, pull.r, first ? 0.0F : *dscale);
      if (args.dbias != nullptr) *dbias = (first ? 0.0F : *dbias) + d;
    }
    find_pull<kCentred>(pull, team, sums, args.group);
    for (int64_t i = threadIdx.x; i < args.group; i += kLoopThreads) {
      float dx = pull(to_float(args.x[at + i]), grad(i));
      if (args.dh != nullptr) dx += to_float(args.dh[at + i]);
      args.dx[at + i] = from_float<T>(dx);
    }
  }
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
using BackwardKernel = void (*)(BackwardRows<T>, int);

template <bool kCentred, class T>
BackwardKernel<T> backward_kernel(const Layout& layout) {
  if (layout.packs == 1) return backward_again<T, kCentred>;
  if (!layout.block) return backward_held<T, kCentred, false, 2>;
  return layout.packs == 2 ? backward_held<T, kCentred, true, 2> : backward_held<T, kCentred, true, 4>;
}

template <bool kCentred, class T>
void run_backward(const char* op, const Device& device, BackwardRows<T> args, const WeightGradients& to) {
  if (args.rows == 0 || args.width == 0) {
    for (Tensor total : {to.dscale, to.dbias}) {
      if (total.defined()) lamina::cuda::fill(total, 0.0);
    }
    return;
  }
  const bool held = can_hold<T>(args.group, {args.x, args.dy, args.dh, args.scale, args.dx});
  const Layout layout = held ? layout_of(args.group / Pack<T>::kSize) : Layout{kLoopThreads, 0, true, 1};
  const BackwardKernel<T> kernel = backward_kernel<kCentred, T>(layout);
  const int64_t width = args.width;
  const int64_t groups = width / args.group;
  const int64_t tasks = (args.rows + layout.teams() - 1) / layout.teams();
  const int64_t slots = slots_for(kernel, layout.threads, device, groups, tasks);
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

}  // namespace lamina::ops::cuda::norm
