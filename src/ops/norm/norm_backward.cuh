#pragma once

// Backward kernels of the norms; norm_rows.cuh has the parts shared with forward. Two tensors are read (three with the
// residual's gradient) and one is written: 65,536 × 4096 in bf16 are 1.6 GB, which take 0.38 ms (4.2 TB/s, H200).
//
// The kernel is persistent: one wave of blocks, each of which processes many rows of the same columns and keeps the
// scale and its partial weight gradients in registers. Each thread prefetches its packs of the next one or two rows
// with cp.async and reads only what it copied itself, so loads continue while the sums of a row are reduced. Groups of
// up to 128 packs are reduced by lanes of a warp without a barrier, larger ones by a block with one barrier per row.
//
// Each block writes its partial weight gradients once, to a row of [slots, width]. A small kernel, which starts while
// this one still runs (slot_sums.cuh), sums the slots in 2 µs. Letting the last block sum them took 5 µs.

#include "lamina/ops/elementwise/reduce_kernel.h"
#include "lamina/ops/elementwise/slot_sums.cuh"
#include "lamina/ops/norm/norm_rows.cuh"
#include "lamina/tensor/cuda/async_copy.cuh"
#include "lamina/tensor/cuda/copy.h"

namespace lamina::ops::cuda::norm {

template <class T>
struct BackwardRows {
  const T* x;
  const T* dy;
  const T* dh;          ///< optional
  Parameters<T> scale;  ///< optional
  const float* mean;
  const float* r;
  T* dx;
  float* dscale;  ///< [slots, width], optional
  float* dbias;   ///< [slots, width], optional
  int64_t rows, group, width;
  int64_t slots;  ///< number of blocks that share the rows of one group
};

/// Which rows and columns a block handles: those of its slot, at the columns of one group.
struct Place {
  int64_t groups;  ///< number of groups per row
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

/// Terms of dx = r·(g − mean(g) − x̂·mean(g·x̂)) with g = dy·scale and x̂ = (x − μ)·r; RMS norm has μ = 0 and no
/// mean(g). With c = mean(g·x̂)·r this is r·(g − mean(g) − c·(x − μ)). So a group needs two sums: Σ g and Σ g·(x − μ).
struct RowGradientTerms {
  float r = 0.0F;
  float mean = 0.0F;
  float c = 0.0F;
  float mean_g = 0.0F;

  __device__ float operator()(float x, float g) const { return fmaf(-c, x - mean, g - mean_g) * r; }
};

/// The mean and r of group `g`, as saved by forward.
template <bool kCentred, class T>
__device__ inline RowGradientTerms kept_of(const BackwardRows<T>& args, int64_t g) {
  RowGradientTerms terms;
  // If a group has one element, x = μ and the gradient is exactly zero; r = 0 keeps rounding errors out.
  terms.r = kCentred && args.group == 1 ? 0.0F : args.r[g];
  if (kCentred) terms.mean = args.mean[g];
  return terms;
}

/// Computes mean_g and c from the group's sums: sums.x = Σ g, sums.y = Σ g·(x − μ).
template <bool kCentred>
__device__ inline void reduce_gradient_terms(RowGradientTerms& terms, float2 sums, int64_t group) {
  const float count = static_cast<float>(group);
  if constexpr (kCentred) terms.mean_g = sums.x / count;
  terms.c = sums.y * terms.r * terms.r / count;
}

/// Sums over the team, returned in every thread; `.x` is summed only if kCentred. `scratch` [2 · kWarp] may be reused
/// after the barrier of a later call with different scratch.
template <bool kCentred, bool kBlock>
__device__ inline float2 add_up(const Team<kBlock>& team, float2 sums, float* scratch) {
  const int most = kBlock ? kWarp : team.lanes;
  for (int step = most / 2; step > 0; step /= 2) {
    if constexpr (kCentred) sums.x += __shfl_xor_sync(kAllLanes, sums.x, step);
    sums.y += __shfl_xor_sync(kAllLanes, sums.y, step);
  }
  if constexpr (kBlock) {
    const int lane = threadIdx.x % kWarp;
    const int warp = threadIdx.x / kWarp;
    if (lane == 0) {
      if constexpr (kCentred) scratch[warp] = sums.x;
      scratch[kWarp + warp] = sums.y;
    }
    __syncthreads();
    const bool there = lane < static_cast<int>(blockDim.x) / kWarp;
    if constexpr (kCentred) sums.x = warp_sum(there ? scratch[lane] : 0.0F);
    sums.y = warp_sum(there ? scratch[kWarp + lane] : 0.0F);
  }
  return sums;
}

/// Sums the weight gradients of the block's teams, in order, into one row of `to`. All threads must be done with
/// `fold`.
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

/// The scale at a thread's packs. Kept in registers, or reloaded for each row if registers are scarce.
template <class T, int kPacks>
struct ScaleOf {
  static constexpr int kSize = Pack<T>::kSize;
  static constexpr bool kKept = kPacks < 4;
  float kept[kKept ? kPacks : 1][kSize];

  template <bool kBlock>
  __device__ void load(const BackwardRows<T>& args, const Team<kBlock>& team, int packs, int64_t column) {
    if constexpr (kKept) {
      team.template each<kPacks>(packs, [&](int k, int p) { read(args, column + p * kSize, kept[k]); });
    }
  }
  /// g = dy · scale
  __device__ void apply(const BackwardRows<T>& args, int k, int64_t column, const Pack<T>& dy,
                        float (&g)[kSize]) const {
    float again[kSize];
    if constexpr (!kKept) read(args, column, again);
#pragma unroll
    for (int j = 0; j < kSize; ++j) g[j] = to_float(dy.values[j]) * (kKept ? kept[kKept ? k : 0][j] : again[j]);
  }

 private:
  static __device__ void read(const BackwardRows<T>& args, int64_t column, float (&to)[kSize]) {
    if (args.scale != nullptr) {
      load_floats(args.scale + column, to);
    } else {
#pragma unroll
      for (int j = 0; j < kSize; ++j) to[j] = 1.0F;
    }
  }
};

/// Pipeline stages in shared memory: the current row and those in flight.
template <int kPacks>
inline constexpr int kStages = kPacks < 3 ? 3 : 2;

/// Shared-memory stages of a thread's packs of x, dy and dh: [kStages][tensors][kPacks][threads of the block].
template <class T, int kPacks>
struct Staged {
  Pack<T>* room;
  int streams;

  __device__ Pack<T>* at(int stage, int stream, int k) const {
    return room + ((stage * streams + stream) * kPacks + k) * blockDim.x + threadIdx.x;
  }
  /// Starts the asynchronous copy of this thread's packs of the row that begins at element `at_row`.
  template <bool kBlock>
  __device__ void copy(const BackwardRows<T>& args, const Team<kBlock>& team, int packs, int64_t at_row,
                       int stage) const {
    __syncwarp();
    team.template each<kPacks>(packs, [&](int k, int p) {
      const int64_t from = at_row + p * Pack<T>::kSize;
      cp_async_16(shared_address(at(stage, 0, k)), args.x + from, true);
      cp_async_16(shared_address(at(stage, 1, k)), args.dy + from, true);
      if (streams == 3) cp_async_16(shared_address(at(stage, 2, k)), args.dh + from, true);
    });
    cp_async_commit();
  }
};

/// Registers per thread: 80 let an SM hold three blocks of 256 threads; 128 let it hold two.
template <bool kCentred, int kPacks>
inline constexpr int kRegisters = kPacks + (kCentred ? 1 : 0) <= 2 ? 80 : 128;

template <class T, bool kCentred, bool kBlock, int kPacks>
__global__ void __maxnreg__((kRegisters<kCentred, kPacks>))
    backward_held(const __grid_constant__ BackwardRows<T> args, int lanes) {
  constexpr int kSize = Pack<T>::kSize;
  constexpr int kDepth = kStages<kPacks>;
  extern __shared__ uint4 room[];
  __shared__ float scratch[2][2 * kWarp];
  grid_dependency_wait();
  const Team<kBlock> team(lanes, nullptr);
  const Place place(args);
  const Staged<T, kPacks> staged{reinterpret_cast<Pack<T>*>(room), args.dh != nullptr ? 3 : 2};
  const int packs = static_cast<int>(args.group / kSize);
  ScaleOf<T, kPacks> scale;
  scale.load(args, team, packs, place.column);
  float dscale[kPacks][kSize] = {};
  float dbias[kPacks][kSize] = {};
  const int64_t step = args.slots * team.count();
  const auto copy = [&](int64_t row, int stage) {
    staged.copy(args, team, row < args.rows ? packs : 0, row * args.width + place.column, stage);
  };
  const auto kept = [&](int64_t row) {
    return row < args.rows ? kept_of<kCentred>(args, row * place.groups + place.in_row) : RowGradientTerms{};
  };
  const int64_t begin = place.slot * team.count();
#pragma unroll
  for (int n = 0; n < kDepth - 1; ++n) copy(begin + team.index() + n * step, n);
  RowGradientTerms next = kept(begin + team.index());
  int stage = 0;
  int turn = 0;
  for (int64_t base = begin; base < args.rows; base += step) {
    const int64_t row = base + team.index();
    const int here = row < args.rows ? packs : 0;  // lanes without a row copy nothing, but take part in the reductions
    const int64_t at = row * args.width + place.column;
    RowGradientTerms terms = next;
    next = kept(row + step);
    copy(row + (kDepth - 1) * step, stage == 0 ? kDepth - 1 : stage - 1);
    cp_async_wait<kDepth - 1>();
    float2 sums = {0.0F, 0.0F};
    team.template each<kPacks>(here, [&](int k, int p) {
      const Pack<T> x = *staged.at(stage, 0, k);
      const Pack<T> dy = *staged.at(stage, 1, k);
      float g[kSize];
      scale.apply(args, k, place.column + p * kSize, dy, g);
#pragma unroll
      for (int j = 0; j < kSize; ++j) {
        const float centred = to_float(x.values[j]) - terms.mean;
        const float d = to_float(dy.values[j]);
        if constexpr (kCentred) sums.x += g[j];
        sums.y = fmaf(g[j], centred, sums.y);
        dscale[k][j] = fmaf(d * centred, terms.r, dscale[k][j]);
        if constexpr (kCentred) dbias[k][j] += d;
      }
    });
    reduce_gradient_terms<kCentred>(terms, add_up<kCentred>(team, sums, scratch[turn]), args.group);
    team.template each<kPacks>(here, [&](int k, int p) {
      Pack<T> x = *staged.at(stage, 0, k);
      const Pack<T> dy = *staged.at(stage, 1, k);
      Pack<T> dh;
      if (staged.streams == 3) dh = *staged.at(stage, 2, k);
      float g[kSize];
      scale.apply(args, k, place.column + p * kSize, dy, g);
#pragma unroll
      for (int j = 0; j < kSize; ++j) {
        float dx = terms(to_float(x.values[j]), g[j]);
        if (staged.streams == 3) dx += to_float(dh.values[j]);
        x.values[j] = from_float<T>(dx);
      }
      store_pack(args.dx + at + p * kSize, x);
    });
    stage = stage == kDepth - 1 ? 0 : stage + 1;
    turn = 1 - turn;
  }
  cp_async_wait();
  __syncthreads();  // the staged rows are consumed: their memory is reused for the teams' sums
  const int64_t partial = place.slot * args.width + place.column;
  auto* fold = reinterpret_cast<float*>(room);
  if (args.dscale != nullptr) put_partial(team, dscale, packs, fold, args.dscale + partial);
  if (kCentred && args.dbias != nullptr) put_partial(team, dbias, packs, fold, args.dbias + partial);
}

template <class T, bool kCentred>
__global__ void __launch_bounds__(kLoopThreads) backward_rereading(const __grid_constant__ BackwardRows<T> args) {
  __shared__ float scratch[64];
  const Team<true> team(0, scratch);
  const Place place(args);
  const int64_t partial = place.slot * args.width + place.column;
  for (int64_t row = place.slot; row < args.rows; row += args.slots) {
    const int64_t at = row * args.width + place.column;
    const bool first = row == place.slot;
    RowGradientTerms terms = kept_of<kCentred>(args, row * place.groups + place.in_row);
    const auto grad = [&](int64_t i) {
      const float d = to_float(args.dy[at + i]);
      return args.scale != nullptr ? d * args.scale[place.column + i] : d;
    };
    float2 sums = {0.0F, 0.0F};
    for (int64_t i = threadIdx.x; i < args.group; i += kLoopThreads) {
      const float centred = to_float(args.x[at + i]) - terms.mean;
      const float d = to_float(args.dy[at + i]);
      sums.x += grad(i);
      sums.y = fmaf(grad(i), centred, sums.y);
      // Each thread visits only its own columns, so it accumulates directly in the partial sums in memory.
      float* dscale = args.dscale + partial + i;
      float* dbias = args.dbias + partial + i;
      if (args.dscale != nullptr) *dscale = fmaf(d * centred, terms.r, first ? 0.0F : *dscale);
      if (args.dbias != nullptr) *dbias = (first ? 0.0F : *dbias) + d;
    }
    reduce_gradient_terms<kCentred>(terms, team.sum(sums), args.group);
    for (int64_t i = threadIdx.x; i < args.group; i += kLoopThreads) {
      float dx = terms(to_float(args.x[at + i]), grad(i));
      if (args.dh != nullptr) dx += to_float(args.dh[at + i]);
      args.dx[at + i] = from_float<T>(dx);
    }
  }
}

/// Destination of the summed weight gradients.
struct WeightGradients {
  Tensor dscale;  ///< [width], or undefined
  Tensor dbias;
};

template <class T>
using BackwardKernel = void (*)(BackwardRows<T>, int);

template <bool kCentred, class T>
BackwardKernel<T> backward_kernel(const Layout& layout) {
  if (layout.block) {
    return layout.packs == 2 ? backward_held<T, kCentred, true, 2> : backward_held<T, kCentred, true, 4>;
  }
  switch (layout.packs) {
    case 1: return backward_held<T, kCentred, false, 1>;
    case 2: return backward_held<T, kCentred, false, 2>;
    case 3: return backward_held<T, kCentred, false, 3>;
    default: return backward_held<T, kCentred, false, 4>;
  }
}

/// Number of blocks per group of a row: one wave, as registers and shared memory allow, divided among the groups.
template <class Kernel>
int64_t slots_for(Kernel kernel, int threads, size_t shared, const Device& device, int64_t groups, int64_t tasks) {
  int resident = 1;
  LAMINA_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, threads, shared), "norm");
  const int64_t wave = static_cast<int64_t>(std::max(resident, 1)) * sm_count(device);
  return std::clamp<int64_t>(wave / groups, 1, tasks);
}

/// Memory [slots, width] for the partial sums of `slots` blocks, or `total` itself if there is only one block.
inline Tensor partial_sums(const Tensor& total, int64_t slots) {
  if (!total.defined() || slots == 1) return total;
  return Tensor::empty({slots, total.dim(0)}, DType::f32, total.device());
}

template <bool kCentred, class T>
void run_held(const Device& device, BackwardRows<T> args, const WeightGradients& to) {
  const Layout layout = packed_layout_of(args.group / Pack<T>::kSize);
  const BackwardKernel<T> kernel = backward_kernel<kCentred, T>(layout);
  const int stages = layout.packs < 3 ? kStages<1> : kStages<4>;
  const int streams = args.dh != nullptr ? 3 : 2;
  const int shared = stages * streams * layout.packs * layout.threads * 16;
  LAMINA_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared), "norm");
  const int64_t groups = args.width / args.group;
  const int64_t tasks = (args.rows + layout.teams() - 1) / layout.teams();
  args.slots = slots_for(kernel, layout.threads, static_cast<size_t>(shared), device, groups, tasks);
  const Tensor dscale = partial_sums(to.dscale, args.slots);
  const Tensor dbias = partial_sums(to.dbias, args.slots);
  args.dscale = device_data<float>(dscale);
  args.dbias = device_data<float>(dbias);
  launch_dependent(kernel, dim3(static_cast<unsigned>(args.slots * groups)), dim3(layout.threads),
                   static_cast<size_t>(shared), device, args, layout.lanes);
  if (args.slots == 1 || (!dscale.defined() && !dbias.defined())) return;
  const SlotSums of_scale{device_data<float>(dscale), device_data<float>(to.dscale)};
  const SlotSums of_bias{device_data<float>(dbias), device_data<float>(to.dbias)};
  const bool both = dscale.defined() && dbias.defined();
  sum_partials(device, dscale.defined() ? of_scale : of_bias, both ? of_bias : SlotSums{}, args.slots, args.width,
               1.0F);
}

template <bool kCentred, class T>
void run_rereading(const Device& device, BackwardRows<T> args, const WeightGradients& to) {
  const auto kernel = backward_rereading<T, kCentred>;
  const int64_t groups = args.width / args.group;
  args.slots = slots_for(kernel, kLoopThreads, 0, device, groups, args.rows);
  const Tensor dscale = partial_sums(to.dscale, args.slots);
  const Tensor dbias = partial_sums(to.dbias, args.slots);
  args.dscale = device_data<float>(dscale);
  args.dbias = device_data<float>(dbias);
  kernel<<<static_cast<unsigned>(args.slots * groups), kLoopThreads, 0, stream_of(device)>>>(args);
  if (args.slots == 1) return;
  if (dscale.defined()) reduce_middle(ReduceMiddle{dscale, 1, args.slots, args.width, 1.0, to.dscale});
  if (dbias.defined()) reduce_middle(ReduceMiddle{dbias, 1, args.slots, args.width, 1.0, to.dbias});
}

template <bool kCentred, class T>
void run_backward(const char* op, const Device& device, const BackwardRows<T>& args, const WeightGradients& to) {
  if (args.rows == 0 || args.width == 0) {
    for (Tensor total : {to.dscale, to.dbias}) {
      if (total.defined()) lamina::cuda::fill(total, 0.0);
    }
    return;
  }
  if (can_hold<T>(args.group, {args.x, args.dy, args.dh, args.scale, args.dx})) {
    run_held<kCentred>(device, args, to);
  } else {
    run_rereading<kCentred>(device, args, to);
  }
  check_launch(op);
}

}  // namespace lamina::ops::cuda::norm
