// Works in levels. Each level sums blocks of a fixed size to one number (or one row of numbers) per block, until one
// block is left. If the summed elements are contiguous, SIMD vectors run along them; otherwise they run across the
// columns.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/ops/elementwise/reduce_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lamina/base/simd_sum-inl.h"
#include "lamina/base/threads.h"
#include "lamina/ops/elementwise/reduce_kernel.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {
using namespace lamina::HWY_NAMESPACE;  // NOLINT: SIMD helpers of this target

constexpr int64_t kContiguous = 4096;  // contiguous elements per block
constexpr int64_t kRows = 128;         // rows per block

/// out[o, block, i] = factor · Σ_{k in block} x[o, k, i].
template <class T>
void sum_blocks(const Threads& threads, const T* x, int64_t outer, int64_t count, int64_t inner, int64_t size,
                Accumulate<T> factor, Accumulate<T>* out) {
  const ComputeTag<T> d;
  const int64_t blocks = (count + size - 1) / size;
  const int64_t grain = rows_per_range(std::min(size, count) * inner, 65536);
  threads.ranges(outer * blocks, grain, [&](int64_t begin, int64_t end) HWY_ATTR {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t k = task % blocks * size;
      const int64_t n = std::min(size, count - k);
      const T* from = x + (task / blocks * count + k) * inner;
      Accumulate<T>* to = out + task * inner;
      if (inner == 1) {
        *to =
            factor * sum_vectors(d, n, [&](int64_t i, size_t c, int /*k*/) HWY_ATTR { return load_n(d, from + i, c); });
        continue;
      }
      for_vectors(d, inner, [&](int64_t i, size_t c) HWY_ATTR {
        auto sum = hn::Zero(d);
        for (int64_t row = 0; row < n; ++row) sum = hn::Add(sum, load_n(d, from + row * inner + i, c));
        store_n(d, hn::Mul(sum, hn::Set(d, factor)), to + i, c);
      });
    }
  });
}

template <class T>
void reduce_as(const Device& device, const T* x, const ReduceMiddle& args, int64_t count) {
  using A = Accumulate<T>;
  const int64_t size = args.inner == 1 ? kContiguous : kRows;
  const int64_t blocks = (count + size - 1) / size;
  if (blocks == 1) {
    const auto factor = static_cast<A>(args.factor);
    sum_blocks(device.threads(), x, args.outer, count, args.inner, size, factor, args.out.data<A>());
    return;
  }
  const Tensor partial = Tensor::empty({args.outer, blocks, args.inner}, dtype_of<A>(), device);
  sum_blocks(device.threads(), x, args.outer, count, args.inner, size, A{1}, partial.data<A>());
  reduce_as<A>(device, partial.data<A>(), args, blocks);
}

void reduce_middle(const ReduceMiddle& args) {
  if (args.out.numel() == 0) return;
  visit_floating(args.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using A = Accumulate<T>;
    if (args.count == 0) {
      std::fill_n(args.out.data<A>(), args.out.numel(), A{0});
    } else {
      reduce_as<T>(args.out.device(), args.x.data<T>(), args, args.count);
    }
  });
}

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lamina::ops {
HWY_EXPORT(reduce_middle);
namespace cpu {
void reduce_middle(const ReduceMiddle& args) { HWY_DYNAMIC_DISPATCH(reduce_middle)(args); }
}  // namespace cpu
}  // namespace lamina::ops
#endif
