// The host first merges neighbouring dimensions along which both operands are contiguous, or both are broadcast: two
// equal shapes become one dimension, a vector added to rows becomes two. A thread computes one pack (16 bytes) of the
// output. Along the innermost dimension an operand is read as a pack or as one repeated value. Each outer dimension
// costs one division (32-bit if possible). If the innermost extent is not a multiple of a pack, threads process single
// elements.
#include "lamina/ops/elementwise/broadcast.h"
#include "lamina/ops/elementwise/elementwise_kernel.h"
#include "lamina/tensor/cuda/kernel.cuh"

namespace lamina::ops::cuda {
namespace {

using namespace lamina::cuda;  // NOLINT: kernel helpers

constexpr int kThreads = 256;

/// Merged extents of `out`, innermost first, and the strides of a and b (0 if broadcast).
struct Plan {
  int rank = 0;
  int64_t shape[Shape::kMaxRank];
  int64_t a[Shape::kMaxRank];
  int64_t b[Shape::kMaxRank];
};

Plan make_plan(const Combination& args) {
  const Shape& shape = args.out.shape();
  const Shape a = broadcast_strides(args.a, shape);
  const Shape b = args.b.defined() ? broadcast_strides(args.b, shape) : a;
  Plan plan;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    const int64_t extent = shape[axis];
    if (extent == 1) continue;
    const int last = plan.rank - 1;
    if (last >= 0 && a[axis] == plan.a[last] * plan.shape[last] && b[axis] == plan.b[last] * plan.shape[last]) {
      plan.shape[last] *= extent;
      continue;
    }
    plan.shape[plan.rank] = extent;
    plan.a[plan.rank] = a[axis];
    plan.b[plan.rank] = b[axis];
    ++plan.rank;
  }
  if (plan.rank == 0) {
    plan.rank = 1;
    plan.shape[0] = plan.a[0] = plan.b[0] = 1;
  }
  return plan;
}

/// Loads kWidth neighbouring elements, or one element repeated kWidth times.
template <int kWidth, class T>
__device__ inline Vec<T, kWidth> load_stretch(const T* from, bool repeated) {
  if (!repeated) return *reinterpret_cast<const Vec<T, kWidth>*>(from);
  Vec<T, kWidth> result;
  const T value = *from;
#pragma unroll
  for (int j = 0; j < kWidth; ++j) result.values[j] = value;
  return result;
}

template <class T, int kWidth, class Index>
__global__ void __launch_bounds__(kThreads) combine_kernel(const T* a, const T* b, T* out, Index total, Combine kind,
                                                           float alpha, const __grid_constant__ Plan plan) {
  using S = Vec<T, kWidth>;
  const Index step = static_cast<Index>(gridDim.x) * kThreads;
  for (Index at = static_cast<Index>(blockIdx.x) * kThreads + threadIdx.x; at < total; at += step) {
    Index rest = at;
    int64_t at_a = 0;
    int64_t at_b = 0;
    const int outermost = plan.rank - 1;
    for (int axis = 0; axis < outermost; ++axis) {
      const Index extent = static_cast<Index>(axis == 0 ? plan.shape[0] / kWidth : plan.shape[axis]);
      const Index quotient = rest / extent;
      const int64_t coordinate = static_cast<int64_t>(rest - quotient * extent) * (axis == 0 ? kWidth : 1);
      at_a += coordinate * plan.a[axis];
      at_b += coordinate * plan.b[axis];
      rest = quotient;
    }
    const int64_t coordinate = static_cast<int64_t>(rest) * (outermost == 0 ? kWidth : 1);
    at_a += coordinate * plan.a[outermost];
    at_b += coordinate * plan.b[outermost];
    const S first = load_stretch<kWidth>(a + at_a, plan.a[0] == 0);
    S second;
    if (kind != Combine::first) second = load_stretch<kWidth>(b + at_b, plan.b[0] == 0);
    S result;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      const float x = to_float(first.values[j]);
      float value = alpha * x;
      if (kind == Combine::sum) value = fmaf(alpha, to_float(second.values[j]), x);
      if (kind == Combine::product) value *= to_float(second.values[j]);
      result.values[j] = from_float<T>(value);
    }
    store_vector_plain(out + static_cast<int64_t>(at) * kWidth, result);
  }
}

/// True if every run along the innermost dimension starts at a 16-byte boundary, or if the operand is broadcast along
/// it.
template <class T>
bool begins_at_packs(const T* first, const Plan& plan, const int64_t* advances) {
  if (advances[0] == 0) return true;
  bool whole = reinterpret_cast<uintptr_t>(first) % 16 == 0;
  for (int axis = 1; axis < plan.rank; ++axis) whole = whole && advances[axis] % Pack<T>::kSize == 0;
  return whole;
}

template <class T, int kWidth>
void launch(const Combination& args, const T* a, const T* b, T* out, const Plan& plan) {
  const int64_t total = args.out.numel() / kWidth;
  const int blocks = blocks_for(total, kThreads);
  const cudaStream_t stream = stream_of(args.out.device());
  const float alpha = static_cast<float>(args.alpha);
  if (total < (int64_t{1} << 30)) {
    combine_kernel<T, kWidth, uint32_t>
        <<<blocks, kThreads, 0, stream>>>(a, b, out, static_cast<uint32_t>(total), args.kind, alpha, plan);
  } else {
    combine_kernel<T, kWidth, uint64_t>
        <<<blocks, kThreads, 0, stream>>>(a, b, out, static_cast<uint64_t>(total), args.kind, alpha, plan);
  }
  check_launch("combine");
}

}  // namespace

void combine(const Combination& args) {
  if (args.out.numel() == 0) return;
  visit_floating("combine", args.out.dtype(), [&](auto tag) {
    using E = typename decltype(tag)::type;
    using T = DeviceType<E>;
    const Plan plan = make_plan(args);
    const T* a = device_data<E>(args.a);
    const T* b = args.b.defined() ? device_data<E>(args.b) : a;
    T* out = device_data<E>(args.out);
    const bool packed =
        is_pack_aligned(out, plan.shape[0]) && begins_at_packs(a, plan, plan.a) && begins_at_packs(b, plan, plan.b);
    packed ? launch<T, Pack<T>::kSize>(args, a, b, out, plan) : launch<T, 1>(args, a, b, out, plan);
  });
}

}  // namespace lamina::ops::cuda
