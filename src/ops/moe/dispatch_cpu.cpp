// Gathers and sums: each thread takes a range of result rows, so every sum is computed by one thread in a fixed order.
//
// The plan is a counting sort: count the choices per expert in each range of choices, compute prefix sums over experts
// and ranges, then assign the slots of each range in order.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/ops/moe/dispatch_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstring>
#include <utility>
#include <vector>

#include "lamina/base/simd-inl.h"
#include "lamina/ops/moe/dispatch_kernel.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {
using namespace lamina::HWY_NAMESPACE;  // NOLINT: SIMD helpers of this target

template <class T>
void gather(const GatherRows& args) {
  using A = Accumulate<T>;
  const int64_t width = args.to.dim(1);
  const T* from = args.from.data<T>();
  const int64_t* index = args.index.data<int64_t>();
  const A* factor = args.factor.defined() ? args.factor.data<A>() : nullptr;
  T* to = args.to.data<T>();
  if (width == 0) return;
  args.to.device().threads().ranges(args.to.dim(0), rows_per_range(width), [&](int64_t begin, int64_t end) HWY_ATTR {
    const ComputeTag<T> d;
    for (int64_t r = begin; r < end; ++r) {
      T* target = to + r * width;
      if (index[r] < 0) {
        std::fill(target, target + width, T{});
        continue;
      }
      const T* source = from + index[r] / args.divisor * width;
      if (factor == nullptr) {
        std::memcpy(target, source, static_cast<size_t>(width) * sizeof(T));
        continue;
      }
      const auto f = hn::Set(d, factor[index[r]]);
      for_vectors(d, width, [&](int64_t i, size_t count) HWY_ATTR {
        store_n(d, hn::Mul(load_n(d, source + i, count), f), target + i, count);
      });
    }
  });
}

template <class T>
void sum(const SumRows& args) {
  using A = Accumulate<T>;
  const int64_t width = args.to.dim(1);
  const int64_t k = args.index.dim(1);
  const T* from = args.from.data<T>();
  const int64_t* index = args.index.data<int64_t>();
  const A* factor = args.factor.defined() ? args.factor.data<A>() : nullptr;
  T* to = args.to.data<T>();
  args.to.device().threads().ranges(
      args.to.dim(0), rows_per_range(width * k), [&](int64_t begin, int64_t end) HWY_ATTR {
        const ComputeTag<T> d;
        for (int64_t t = begin; t < end; ++t) {
          for_vectors(d, width, [&](int64_t i, size_t count) HWY_ATTR {
            auto total = hn::Zero(d);
            for (int64_t j = t * k; j < (t + 1) * k; ++j) {
              if (index[j] < 0) continue;
              const auto row = load_n(d, from + index[j] * width + i, count);
              total = factor != nullptr ? hn::MulAdd(row, hn::Set(d, factor[j]), total) : hn::Add(row, total);
            }
            store_n(d, total, to + t * width + i, count);
          });
        }
      });
}

template <class T>
void dot(const DotRows& args) {
  using A = Accumulate<T>;
  const int64_t width = args.with.dim(1);
  const int64_t k = args.index.dim(1);
  const T* from = args.from.data<T>();
  const T* with = args.with.data<T>();
  const int64_t* index = args.index.data<int64_t>();
  A* out = args.dot.data<A>();
  args.with.device().threads().ranges(args.with.dim(0), rows_per_range(width * k),
                                      [&](int64_t begin, int64_t end) HWY_ATTR {
                                        const ComputeTag<T> d;
                                        for (int64_t j = begin * k; j < end * k; ++j) {
                                          auto total = hn::Zero(d);
                                          if (index[j] >= 0) {
                                            for_vectors(d, width, [&](int64_t i, size_t count) HWY_ATTR {
                                              total = hn::MulAdd(load_n(d, from + index[j] * width + i, count),
                                                                 load_n(d, with + j / k * width + i, count), total);
                                            });
                                          }
                                          out[j] = hn::GetLane(hn::SumOfLanes(d, total));
                                        }
                                      });
}

void gather_rows(const GatherRows& args) {
  visit_floating(args.from.dtype(), [&](auto tag) { gather<typename decltype(tag)::type>(args); });
}
void sum_rows(const SumRows& args) {
  visit_floating(args.from.dtype(), [&](auto tag) { sum<typename decltype(tag)::type>(args); });
}
void dot_rows(const DotRows& args) {
  visit_floating(args.from.dtype(), [&](auto tag) { dot<typename decltype(tag)::type>(args); });
}

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lamina::ops {
HWY_EXPORT(gather_rows);
HWY_EXPORT(sum_rows);
HWY_EXPORT(dot_rows);

namespace cpu {
void gather_rows(const GatherRows& args) { HWY_DYNAMIC_DISPATCH(gather_rows)(args); }
void sum_rows(const SumRows& args) { HWY_DYNAMIC_DISPATCH(sum_rows)(args); }
void dot_rows(const DotRows& args) { HWY_DYNAMIC_DISPATCH(dot_rows)(args); }

void plan_dispatch(const Tensor& indices, int64_t capacity, const DispatchPlan& plan) {
  const int64_t n = indices.numel();
  const int64_t experts = plan.offsets.numel() - 1;
  const int64_t* index = indices.data<int64_t>();
  const int64_t grain = std::max<int64_t>(4096, (n + 63) / 64);
  const int64_t ranges = (n + grain - 1) / grain;
  // First the number of choices per expert in each range, then the rank of the range's first choice among all of that
  // expert.
  std::vector<int64_t> rank(static_cast<size_t>(ranges * experts), 0);
  const Threads& threads = indices.device().threads();
  threads.ranges(n, grain, [&](int64_t begin, int64_t end) {
    int64_t* counts = rank.data() + begin / grain * experts;
    for (int64_t i = begin; i < end; ++i) ++counts[index[i]];
  });
  int64_t* offsets = plan.offsets.data<int64_t>();
  offsets[0] = 0;
  for (int64_t e = 0; e < experts; ++e) {
    int64_t total = 0;
    for (int64_t r = 0; r < ranges; ++r) {
      total += std::exchange(rank[static_cast<size_t>(r * experts + e)], total);
    }
    offsets[e + 1] = offsets[e] + (capacity > 0 ? std::min(total, capacity) : total);
  }
  int64_t* slot_of = plan.slot_of.data<int64_t>();
  int64_t* choice = plan.choice.data<int64_t>();
  uint8_t* kept = plan.kept.data<uint8_t>();
  threads.ranges(n, grain, [&](int64_t begin, int64_t end) {
    int64_t* next = rank.data() + begin / grain * experts;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t slot = offsets[index[i]] + next[index[i]]++;
      const bool fits = slot < offsets[index[i] + 1];
      slot_of[i] = fits ? slot : -1;
      kept[i] = fits ? 1 : 0;
      if (fits) choice[slot] = i;
    }
  });
  std::fill(choice + offsets[experts], choice + plan.slots, -1);
  *plan.dropped.data<int64_t>() = n - offsets[experts];
}
}  // namespace cpu
}  // namespace lamina::ops
#endif
