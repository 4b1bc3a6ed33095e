// Gathers and sums: a warp computes one result row in packs of 16 bytes, so every sum is computed by one warp in a
// fixed order.
//
// The plan is a counting sort in three kernels. range_counts_kernel counts the choices per expert in each range of
// choices. ranks_kernel turns these counts into the rank of each range's first choice per expert, and computes the
// offsets. In places_kernel a warp per range assigns slots, 32 choices at a time and in order; lanes that hold the same
// expert find each other with __match_any_sync.
#include <algorithm>

#include "lamina/ops/moe/dispatch_kernel.h"
#include "lamina/tensor/cuda/kernel.cuh"

namespace lamina::ops::cuda {
namespace {

using lamina::cuda::check_launch;
using lamina::cuda::device_data;
using lamina::cuda::DeviceType;
using lamina::cuda::from_float;
using lamina::cuda::kAllLanes;
using lamina::cuda::kWarp;
using lamina::cuda::stream_of;
using lamina::cuda::to_float;

constexpr int kThreads = 256;

__device__ int64_t row_of_warp() { return (blockIdx.x * int64_t{kThreads} + threadIdx.x) / kWarp; }
__device__ int lane_of() { return static_cast<int>(threadIdx.x) % kWarp; }
int warp_blocks(int64_t rows) { return lamina::cuda::blocks_for(rows, kThreads / kWarp); }

template <class T, int V>
__global__ void __launch_bounds__(kThreads) gather_kernel(const T* from, const int64_t* index, const float* factor,
                                                          int64_t divisor, T* to, int64_t rows, int64_t width) {
  using Pack = lamina::cuda::Vec<T, V>;
  const int64_t row = row_of_warp();
  if (row >= rows) return;
  const int64_t source = index[row];
  auto* target = reinterpret_cast<Pack*>(to + row * width);
  const int64_t packs = width / V;
  if (source < 0) {
    Pack zeros;
#pragma unroll
    for (int v = 0; v < V; ++v) zeros.values[v] = from_float<T>(0.0F);
    for (int64_t i = lane_of(); i < packs; i += kWarp) target[i] = zeros;
    return;
  }
  const auto* row_from = reinterpret_cast<const Pack*>(from + source / divisor * width);
  if (factor == nullptr) {
#pragma unroll 4
    for (int64_t i = lane_of(); i < packs; i += kWarp) target[i] = row_from[i];
    return;
  }
  const float f = factor[source];
#pragma unroll 4
  for (int64_t i = lane_of(); i < packs; i += kWarp) {
    Pack pack = row_from[i];
#pragma unroll
    for (int v = 0; v < V; ++v) pack.values[v] = from_float<T>(f * to_float(pack.values[v]));
    target[i] = pack;
  }
}

template <class T, int V>
__global__ void __launch_bounds__(kThreads) sum_kernel(const T* from, const int64_t* index, const float* factor,
                                                       int64_t k, T* to, int64_t rows, int64_t width) {
  using Pack = lamina::cuda::Vec<T, V>;
  const int64_t row = row_of_warp();
  if (row >= rows) return;
  const int64_t packs = width / V;
  for (int64_t i = lane_of(); i < packs; i += kWarp) {
    float total[V] = {};
#pragma unroll 4
    for (int64_t j = row * k; j < (row + 1) * k; ++j) {
      const int64_t source = index[j];
      if (source < 0) continue;
      const float f = factor != nullptr ? factor[j] : 1.0F;
      const Pack pack = reinterpret_cast<const Pack*>(from + source * width)[i];
#pragma unroll
      for (int v = 0; v < V; ++v) total[v] = fmaf(to_float(pack.values[v]), f, total[v]);
    }
    Pack result;
#pragma unroll
    for (int v = 0; v < V; ++v) result.values[v] = from_float<T>(total[v]);
    reinterpret_cast<Pack*>(to + row * width)[i] = result;
  }
}

/// dot[t, j] = from[index[t, j]] · with[t]: one warp per choice.
template <class T, int V>
__global__ void __launch_bounds__(kThreads) dot_kernel(const T* from, const T* with, const int64_t* index, int64_t k,
                                                       float* dot, int64_t choices, int64_t width) {
  using Pack = lamina::cuda::Vec<T, V>;
  const int64_t choice = row_of_warp();
  if (choice >= choices) return;
  float total = 0;
  const int64_t source = index[choice];
  if (source >= 0) {
    const auto* left = reinterpret_cast<const Pack*>(from + source * width);
    const auto* right = reinterpret_cast<const Pack*>(with + choice / k * width);
#pragma unroll 2
    for (int64_t i = lane_of(); i < width / V; i += kWarp) {
      const Pack a = left[i];
      const Pack b = right[i];
#pragma unroll
      for (int v = 0; v < V; ++v) total = fmaf(to_float(a.values[v]), to_float(b.values[v]), total);
    }
  }
  total = lamina::cuda::warp_sum(total);
  if (lane_of() == 0) dot[choice] = total;
}

/// counts[e · ranges + r] = number of choices of range r for expert e.
__global__ void __launch_bounds__(kThreads)
    range_counts_kernel(const int64_t* indices, int64_t count, int64_t grain, int experts, int* counts,
                        lamina::cuda::FaultSlot* faults) {
  extern __shared__ int found[];
  for (int e = threadIdx.x; e < experts; e += kThreads) found[e] = 0;
  __syncthreads();
  const int64_t begin = blockIdx.x * grain;
  const int64_t end = min(begin + grain, count);
  for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
    const int64_t expert = indices[i];
    if (expert < 0 || expert >= experts) {
      lamina::cuda::report(faults, lamina::cuda::Fault::expert, expert);
    } else {
      atomicAdd(found + expert, 1);
    }
  }
  __syncthreads();
  for (int e = threadIdx.x; e < experts; e += kThreads) counts[e * int64_t{gridDim.x} + blockIdx.x] = found[e];
}

/// Returns the exclusive prefix sum over the lanes of the warp; `value` becomes the sum over all lanes.
__device__ int64_t exclusive_sum(int64_t& value) {
  int64_t inclusive = value;
  for (int step = 1; step < kWarp; step *= 2) {
    const int64_t other = __shfl_up_sync(kAllLanes, inclusive, step);
    if (lane_of() >= step) inclusive += other;
  }
  const int64_t before = inclusive - value;
  value = __shfl_sync(kAllLanes, inclusive, kWarp - 1);
  return before;
}

/// Runs as one block. A warp scans one expert's counts: the first choice of a range gets the number of earlier choices
/// of that expert. Then the first warp computes the offsets as prefix sums over experts.
__global__ void __launch_bounds__(kThreads) ranks_kernel(int* counts, int64_t ranges, int experts, int64_t count,
                                                         int64_t capacity, int64_t* offsets, int64_t* dropped) {
  for (int e = threadIdx.x / kWarp; e < experts; e += kThreads / kWarp) {
    int* row = counts + e * ranges;
    int64_t total = 0;
    for (int64_t first = 0; first < ranges; first += kWarp) {
      const int64_t r = first + lane_of();
      int64_t value = r < ranges ? row[r] : 0;
      const int64_t before = exclusive_sum(value);
      if (r < ranges) row[r] = static_cast<int>(total + before);
      total += value;
    }
    if (lane_of() == 0) offsets[e + 1] = capacity > 0 ? min(total, capacity) : total;
  }
  __syncthreads();
  if (threadIdx.x >= kWarp) return;
  int64_t taken = 0;
  for (int first = 0; first < experts; first += kWarp) {
    const int e = first + lane_of();
    const int64_t mine = e < experts ? offsets[e + 1] : 0;
    int64_t value = mine;
    const int64_t before = exclusive_sum(value);
    if (e < experts) offsets[e + 1] = taken + before + mine;
    taken += value;
  }
  if (lane_of() != 0) return;
  offsets[0] = 0;
  *dropped = count - taken;
}

struct Places {
  const int64_t *indices, *offsets;
  const int* ranks;
  int64_t count, grain, ranges;
  int experts;
  int64_t *slot_of, *choice;
  uint8_t* kept;
};

/// Assigns the slots of one range of choices; a block is one warp and takes one range.
__global__ void __launch_bounds__(kWarp) places_kernel(Places p) {
  extern __shared__ int next[];
  for (int e = lane_of(); e < p.experts; e += kWarp) next[e] = p.ranks[e * p.ranges + blockIdx.x];
  __syncwarp();
  const int64_t begin = blockIdx.x * p.grain;
  const int64_t end = min(begin + p.grain, p.count);
  for (int64_t first = begin; first < end; first += kWarp) {
    const int64_t i = first + lane_of();
    const int64_t given = i < end ? p.indices[i] : -1;
    const int expert = given >= 0 && given < p.experts ? static_cast<int>(given) : -1;
    const unsigned same = __match_any_sync(kAllLanes, expert);
    const int before = __popc(same & ((1U << lane_of()) - 1));
    const int rank = expert >= 0 ? next[expert] + before : 0;
    __syncwarp();
    if (expert >= 0 && before == 0) next[expert] += __popc(same);
    __syncwarp();
    if (i >= end) continue;
    const int64_t slot = expert >= 0 ? p.offsets[expert] + rank : 0;
    const bool fits = expert >= 0 && slot < p.offsets[expert + 1];
    p.slot_of[i] = fits ? slot : -1;
    p.kept[i] = fits ? 1 : 0;
    if (fits) p.choice[slot] = i;
  }
}

/// Calls fn(std::integral_constant<int, V>) with V = the elements in 16 bytes if all rows are aligned, else with V = 1.
template <class T, class F>
void visit_width(int64_t width, std::initializer_list<const void*> pointers, const F& fn) {
  constexpr int kPack = 16 / sizeof(T);
  bool whole = width % kPack == 0;
  for (const void* pointer : pointers) whole = whole && reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
  whole ? fn(std::integral_constant<int, kPack>{}) : fn(std::integral_constant<int, 1>{});
}

}  // namespace

void gather_rows(const GatherRows& args) {
  if (args.to.numel() == 0) return;
  lamina::cuda::visit_floating("gather_rows", args.from.dtype(), [&](auto tag) {
    using T = DeviceType<typename decltype(tag)::type>;
    const T* from = device_data<typename decltype(tag)::type>(args.from);
    T* to = device_data<typename decltype(tag)::type>(args.to);
    const int64_t rows = args.to.dim(0);
    const int64_t width = args.to.dim(1);
    visit_width<T>(width, {from, to}, [&](auto pack) {
      gather_kernel<T, decltype(pack)::value><<<warp_blocks(rows), kThreads, 0, stream_of(args.to.device())>>>(
          from, args.index.data<int64_t>(), device_data<float>(args.factor), args.divisor, to, rows, width);
    });
    check_launch("gather_rows");
  });
}

void sum_rows(const SumRows& args) {
  if (args.to.numel() == 0) return;
  lamina::cuda::visit_floating("sum_rows", args.from.dtype(), [&](auto tag) {
    using T = DeviceType<typename decltype(tag)::type>;
    const T* from = device_data<typename decltype(tag)::type>(args.from);
    T* to = device_data<typename decltype(tag)::type>(args.to);
    const int64_t rows = args.to.dim(0);
    const int64_t width = args.to.dim(1);
    visit_width<T>(width, {from, to}, [&](auto pack) {
      sum_kernel<T, decltype(pack)::value><<<warp_blocks(rows), kThreads, 0, stream_of(args.to.device())>>>(
          from, args.index.data<int64_t>(), device_data<float>(args.factor), args.index.dim(1), to, rows, width);
    });
    check_launch("sum_rows");
  });
}

void dot_rows(const DotRows& args) {
  if (args.dot.numel() == 0) return;
  lamina::cuda::visit_floating("dot_rows", args.from.dtype(), [&](auto tag) {
    using T = DeviceType<typename decltype(tag)::type>;
    const T* from = device_data<typename decltype(tag)::type>(args.from);
    const T* with = device_data<typename decltype(tag)::type>(args.with);
    const int64_t choices = args.dot.numel();
    const int64_t width = args.with.dim(1);
    visit_width<T>(width, {from, with}, [&](auto pack) {
      dot_kernel<T, decltype(pack)::value><<<warp_blocks(choices), kThreads, 0, stream_of(args.dot.device())>>>(
          from, with, args.index.data<int64_t>(), args.index.dim(1), args.dot.data<float>(), choices, width);
    });
    check_launch("dot_rows");
  });
}

void plan_dispatch(const Tensor& indices, int64_t capacity, const DispatchPlan& plan) {
  constexpr const char* kOp = "plan_dispatch";
  constexpr int64_t kMostExperts = 12288;  // 48 KiB of counts in shared memory
  const Device& device = indices.device();
  const cudaStream_t stream = stream_of(device);
  const int64_t count = indices.numel();
  const int64_t experts = plan.offsets.numel() - 1;
  LAMINA_CHECK(experts <= kMostExperts, kOp, ": ", experts, " experts on a cuda device; expected at most ",
               kMostExperts, "; use the cpu for more");
  LAMINA_CHECK(count < (int64_t{1} << 31), kOp, ": ", count, " choices; expected fewer than 2^31");
  if (plan.choice.numel() > 0) {
    LAMINA_CUDA(cudaMemsetAsync(plan.choice.raw(), 0xff, static_cast<size_t>(plan.choice.nbytes()), stream), kOp);
  }
  const int64_t grain = std::max<int64_t>(512, (count + 1023) / 1024);
  const int64_t ranges = (count + grain - 1) / grain;
  const Tensor counts = Tensor::empty({experts, ranges}, DType::i32, device);
  const size_t bytes = static_cast<size_t>(experts) * sizeof(int);
  if (ranges > 0) {
    range_counts_kernel<<<static_cast<unsigned>(ranges), kThreads, bytes, stream>>>(
        indices.data<int64_t>(), count, grain, static_cast<int>(experts), counts.data<int32_t>(),
        lamina::cuda::fault_slot(device));
    check_launch(kOp);
  }
  ranks_kernel<<<1, kThreads, 0, stream>>>(counts.data<int32_t>(), ranges, static_cast<int>(experts), count, capacity,
                                           plan.offsets.data<int64_t>(), plan.dropped.data<int64_t>());
  check_launch(kOp);
  if (ranges == 0) return;
  places_kernel<<<static_cast<unsigned>(ranges), kWarp, bytes, stream>>>(Places{
      indices.data<int64_t>(), plan.offsets.data<int64_t>(), counts.data<int32_t>(), count, grain, ranges,
      static_cast<int>(experts), plan.slot_of.data<int64_t>(), plan.choice.data<int64_t>(), plan.kept.data<uint8_t>()});
  check_launch(kOp);
}

}  // namespace lamina::ops::cuda
