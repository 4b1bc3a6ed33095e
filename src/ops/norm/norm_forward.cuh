#pragma once

// Forward kernels of the norms. norm_rows.cuh explains the strategy.

#include "lamina/ops/norm/norm_rows.cuh"

namespace lamina::ops::cuda::norm {

template <class T>
struct ForwardRows {
  const T* x;
  const T* residual;    ///< optional
  Parameters<T> scale;  ///< [width], optional
  Parameters<T> bias;   ///< [width], optional
  T* h;                 ///< x + residual, optional
  T* y;
  float* mean;  ///< [groups], if kCentred
  float* r;     ///< [groups]
  int64_t groups, group, width;
  float eps;
};

/// Loads the packs of a group. If there is a residual, adds it and stores the sum as h.
template <class T, bool kBlock, int kPacks>
__device__ inline void load_group(const ForwardRows<T>& args, const Team<kBlock>& team, int packs, int64_t at,
                                  Pack<T> (&held)[kPacks]) {
  constexpr int kSize = Pack<T>::kSize;
  team.template each<kPacks>(packs, [&](int k, int p) { held[k] = load_pack(args.x + at + p * kSize); });
  if (args.residual == nullptr) return;
  Pack<T> other[kPacks];
  team.template each<kPacks>(packs, [&](int k, int p) { other[k] = load_pack(args.residual + at + p * kSize); });
  team.template each<kPacks>(packs, [&](int k, int p) {
#pragma unroll
    for (int j = 0; j < kSize; ++j) {  // rounded to T, because later layers see h in T
      held[k].values[j] = from_float<T>(to_float(held[k].values[j]) + to_float(other[k].values[j]));
    }
    store_pack(args.h + at + p * kSize, held[k]);
  });
}

/// Which parameters are present. If all are present with the same dtype, a kernel branches once instead of once per
/// pack. Then the loads of a pack need not wait for the stores of the previous one.
enum class Given { all_f32, all_narrow, any };
template <bool kCentred, class T>
__device__ inline Given given(const ForwardRows<T>& args) {
  if (args.scale.wide != nullptr && (!kCentred || args.bias.wide != nullptr)) return Given::all_f32;
  if (args.scale.narrow != nullptr && (!kCentred || args.bias.narrow != nullptr)) return Given::all_narrow;
  return Given::any;
}

/// Scale and bias of one pack; the loader leaves out those that are not present.
template <class T, bool kCentred>
struct Affine {
  float scale[Pack<T>::kSize];
  float bias[kCentred ? Pack<T>::kSize : 4];

  static __device__ void fetch(const ForwardRows<T>& args, int64_t column) {
    if (args.scale != nullptr) prefetch_l2(args.scale + column);
    if (kCentred && args.bias != nullptr) prefetch_l2(args.bias + column);
  }
  template <Given kGiven = Given::any>
  __device__ void load(const ForwardRows<T>& args, int64_t column) {
    if constexpr (kGiven == Given::all_f32) {
      load_floats(args.scale.wide + column, scale);
      if constexpr (kCentred) load_floats(args.bias.wide + column, bias);
    } else if constexpr (kGiven == Given::all_narrow) {
      load_floats(args.scale.narrow + column, scale);
      if constexpr (kCentred) load_floats(args.bias.narrow + column, bias);
    } else {
      if (args.scale != nullptr) load_floats(args.scale + column, scale);
      if (kCentred && args.bias != nullptr) load_floats(args.bias + column, bias);
    }
  }
};

/// Computes y of one pack in place.
template <Given kGiven, bool kCentred, class T>
__device__ inline void normalize(const ForwardRows<T>& args, const Affine<T, kCentred>& by, Pack<T>& pack, float mean,
                                 float r) {
  constexpr int kSize = Pack<T>::kSize;
  float v[kSize];
#pragma unroll
  for (int j = 0; j < kSize; ++j) v[j] = (to_float(pack.values[j]) - mean) * r;
  if (kGiven != Given::any || args.scale != nullptr) {
#pragma unroll
    for (int j = 0; j < kSize; ++j) v[j] *= by.scale[j];
  }
  if constexpr (kCentred) {
    if (kGiven != Given::any || args.bias != nullptr) {
#pragma unroll
      for (int j = 0; j < kSize; ++j) v[j] += by.bias[j];
    }
  }
#pragma unroll
  for (int j = 0; j < kSize; ++j) pack.values[j] = from_float<T>(v[j]);
}

/// One team per group, which is kept in registers. kFew: there are too few blocks to hide latency, so scale and bias
/// are prefetched and then loaded together with x.
template <class T, bool kCentred, bool kBlock, int kPacks, bool kFew>
__global__ void __launch_bounds__(kBlock ? kBlockThreads : kTeamThreads)
    forward_held(const __grid_constant__ ForwardRows<T> args, int lanes) {
  constexpr int kSize = Pack<T>::kSize;
  __shared__ float scratch[64];
  const Team<kBlock> team(lanes, scratch);
  const int64_t g = static_cast<int64_t>(blockIdx.x) * team.count() + team.index();
  const bool valid = g < args.groups;  // lanes without a group stay for the reductions
  const int packs = valid ? static_cast<int>(args.group / kSize) : 0;
  const int64_t at = g * args.group;
  const auto first_column = [&] { return args.group == args.width ? 0 : at % args.width; };
  Affine<T, kCentred> early[kFew ? kPacks : 1];
  if constexpr (kFew) {
    const int64_t column = first_column();
    team.template each<kPacks>(packs, [&](int, int p) { early[0].fetch(args, column + p * kSize); });
  }
  grid_dependency_wait();
  if constexpr (kFew) {
    const int64_t column = first_column();
    team.template each<kPacks>(packs, [&](int k, int p) { early[k].load(args, column + p * kSize); });
  }
  Pack<T> held[kPacks];
  load_group(args, team, packs, at, held);
  const float count = static_cast<float>(args.group);
  float mean = 0.0F;
  if constexpr (kCentred) {
    float sum = 0.0F;
    team.template each<kPacks>(packs, [&](int k, int) {
#pragma unroll
      for (int j = 0; j < kSize; ++j) sum += to_float(held[k].values[j]);
    });
    mean = team.sum(sum) / count;
  }
  float squares = 0.0F;
  team.template each<kPacks>(packs, [&](int k, int) {
#pragma unroll
    for (int j = 0; j < kSize; ++j) {
      const float v = to_float(held[k].values[j]) - mean;
      squares = fmaf(v, v, squares);
    }
  });
  const float r = 1.0F / sqrtf(team.sum(squares) / count + args.eps);
  if (valid && team.lane() == 0) {
    args.r[g] = r;
    if constexpr (kCentred) args.mean[g] = mean;
  }
  const int64_t column = kFew ? 0 : first_column();
  const auto write = [&](auto kind) {
    constexpr Given kGiven = decltype(kind)::value;
    team.template each<kPacks>(packs, [&](int k, int p) {
      if constexpr (!kFew) early[0].template load<kGiven>(args, column + p * kSize);
      normalize<kGiven>(args, early[kFew ? k : 0], held[k], mean, r);
      store_pack(args.y + at + p * kSize, held[k]);
    });
  };
  switch (kFew ? Given::any : given<kCentred>(args)) {
    case Given::all_f32: return write(std::integral_constant<Given, Given::all_f32>{});
    case Given::all_narrow: return write(std::integral_constant<Given, Given::all_narrow>{});
    case Given::any: return write(std::integral_constant<Given, Given::any>{});
  }
}

template <class T, bool kCentred>
__global__ void __launch_bounds__(kLoopThreads) forward_rereading(const __grid_constant__ ForwardRows<T> args) {
  __shared__ float scratch[kWarp];
  grid_dependency_wait();
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
        args.h[at + i] = v;  // read again only by this thread
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

/// Layout for many groups: smaller blocks than packed_layout_of and, for layer norm, more packs per thread.
inline Layout many_layout_of(int64_t packs, bool centred) {
  Layout layout = packed_layout_of(packs);
  if (!layout.block) {
    layout.threads = 128;
  } else if (centred && layout.packs == 2) {
    layout.packs = 4;
    layout.threads = static_cast<int>((packs + 4 * kWarp - 1) / (4 * kWarp) * kWarp);
  }
  return layout;
}

template <class T>
using ForwardKernel = void (*)(ForwardRows<T>, int);

/// Kernel for few groups, which are latency-bound: as many threads as there are packs.
template <class T, bool kCentred>
ForwardKernel<T> kernel_for_few(const Layout& layout) {
  if (!layout.block) return forward_held<T, kCentred, false, 2, true>;
  return layout.packs == 2 ? forward_held<T, kCentred, true, 2, true> : forward_held<T, kCentred, true, 4, true>;
}
template <class T, bool kCentred>
ForwardKernel<T> kernel_for_many(const Layout& layout) {
  if (layout.block) {
    return layout.packs == 2 ? forward_held<T, kCentred, true, 2, false> : forward_held<T, kCentred, true, 4, false>;
  }
  switch (layout.packs) {
    case 1: return forward_held<T, kCentred, false, 1, false>;
    case 2: return forward_held<T, kCentred, false, 2, false>;
    case 3: return forward_held<T, kCentred, false, 3, false>;
    default: return forward_held<T, kCentred, false, 4, false>;
  }
}

template <bool kCentred, class T>
void run_forward(const char* op, const Device& device, const ForwardRows<T>& args) {
  if (args.groups == 0) return;
  const auto launch = [&](auto* kernel, int blocks, int threads, auto... more) {
    launch_dependent(kernel, dim3(static_cast<unsigned>(blocks)), dim3(static_cast<unsigned>(threads)), 0, device, args,
                     more...);
  };
  if (!can_hold<T>(args.group, {args.x, args.residual, args.scale, args.bias, args.h, args.y})) {
    launch(forward_rereading<T, kCentred>, blocks_for(args.groups, 1), kLoopThreads);
  } else {
    const int64_t packs = args.group / Pack<T>::kSize;
    const Layout spread = layout_of(packs);
    const bool few = blocks_for(args.groups, spread.teams()) <= sm_count(device);
    const Layout layout = few ? spread : many_layout_of(packs, kCentred);
    const auto kernel = few ? kernel_for_few<T, kCentred>(layout) : kernel_for_many<T, kCentred>(layout);
    launch(kernel, blocks_for(args.groups, layout.teams()), layout.threads, layout.lanes);
  }
  check_launch(op);
}

}  // namespace lamina::ops::cuda::norm
