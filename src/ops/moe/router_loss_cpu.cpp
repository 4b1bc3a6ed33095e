// Each range of tokens sums the probabilities of its rows (balance loss) or their squared log-sum-exp (z-loss). The
// partial sums of the ranges, at most 64, are added in order.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/ops/moe/router_loss_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <vector>

#include "lamina/base/simd-inl.h"
#include "lamina/ops/moe/router_loss_kernel.h"
#include "lamina/ops/moe/router_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {

template <class T>
void forward(const RouterLossForward& args) {
  using A = Accumulate<T>;
  const int64_t tokens = args.logits.dim(0);
  const int64_t experts = args.logits.dim(1);
  const bool balance = args.indices.defined();
  const T* logits = args.logits.data<T>();
  const int64_t width = balance ? experts : 1;
  const int64_t grain = std::max(rows_per_range(experts), (tokens + 63) / 64);
  const int64_t ranges = (tokens + grain - 1) / grain;
  std::vector<A> partial(static_cast<size_t>(ranges * width), A{0});
  args.logits.device().threads().ranges(tokens, grain, [&](int64_t begin, int64_t end) HWY_ATTR {
    const ComputeTag<T> d;
    std::vector<A> row(static_cast<size_t>(experts));
    A* sums = partial.data() + begin / grain * width;
    double squares = 0;
    for (int64_t t = begin; t < end; ++t) {
      load_row<T>(logits + t * experts, experts, row.data());
      const A lse = softmax_in_place(row.data(), experts);
      if (!balance) {
        squares += static_cast<double>(lse) * static_cast<double>(lse);
        continue;
      }
      for_vectors(d, experts, [&](int64_t i, size_t count) HWY_ATTR {
        store_n(d, hn::Add(load_n(d, sums + i, count), load_n(d, row.data() + i, count)), sums + i, count);
      });
    }
    if (!balance) sums[0] = static_cast<A>(squares);
  });
  double loss = 0;
  std::vector<int64_t> counts(static_cast<size_t>(width), 0);
  if (balance) {
    const int64_t* indices = args.indices.data<int64_t>();
    for (int64_t i = 0; i < args.indices.numel(); ++i) ++counts[static_cast<size_t>(indices[i])];
  }
  for (int64_t e = 0; e < width && tokens > 0; ++e) {
    double sum = 0;
    for (int64_t range = 0; range < ranges; ++range) sum += partial[static_cast<size_t>(range * width + e)];
    if (balance) {
      const A share = static_cast<A>(counts[static_cast<size_t>(e)]) / static_cast<A>(args.indices.numel());
      args.shares.data<A>()[e] = share;
      sum *= static_cast<double>(share) * static_cast<double>(experts);
    }
    loss += sum / static_cast<double>(tokens);
  }
  *args.loss.data<A>() = static_cast<A>(loss);
}

template <class T>
void backward(const RouterLossBackward& args) {
  using A = Accumulate<T>;
  const int64_t tokens = args.logits.dim(0);
  const int64_t experts = args.logits.dim(1);
  const T* logits = args.logits.data<T>();
  const A* shares = args.shares.defined() ? args.shares.data<A>() : nullptr;
  T* dlogits = args.dlogits.data<T>();
  const A factor =
      *args.dloss.data<A>() / static_cast<A>(tokens) * (shares != nullptr ? static_cast<A>(experts) : A{2});
  args.logits.device().threads().ranges(tokens, rows_per_range(experts), [&](int64_t begin, int64_t end) HWY_ATTR {
    const ComputeTag<T> d;
    std::vector<A> row(static_cast<size_t>(experts));
    for (int64_t t = begin; t < end; ++t) {
      load_row<T>(logits + t * experts, experts, row.data());
      const A lse = softmax_in_place(row.data(), experts);
      A offset = lse;
      if (shares != nullptr) {
        auto dot = hn::Zero(d);
        for_vectors(d, experts, [&](int64_t i, size_t count) HWY_ATTR {
          dot = hn::MulAdd(load_n(d, row.data() + i, count), load_n(d, shares + i, count), dot);
        });
        offset = -hn::GetLane(hn::SumOfLanes(d, dot));
      }
      const auto shift = hn::Set(d, offset);
      const auto scale = hn::Set(d, factor);
      for_vectors(d, experts, [&](int64_t i, size_t count) HWY_ATTR {
        const auto pull = shares != nullptr ? hn::Add(load_n(d, shares + i, count), shift) : shift;
        const auto p = hn::Mul(load_n(d, row.data() + i, count), scale);
        store_n(d, hn::Mul(p, pull), dlogits + t * experts + i, count);
      });
    }
  });
}

void router_loss_forward(const RouterLossForward& args) {
  visit_floating(args.logits.dtype(), [&](auto tag) { forward<typename decltype(tag)::type>(args); });
}
void router_loss_backward(const RouterLossBackward& args) {
  visit_floating(args.logits.dtype(), [&](auto tag) { backward<typename decltype(tag)::type>(args); });
}

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lamina::ops {
HWY_EXPORT(router_loss_forward);
HWY_EXPORT(router_loss_backward);

namespace cpu {
void router_loss_forward(const RouterLossForward& args) { HWY_DYNAMIC_DISPATCH(router_loss_forward)(args); }
void router_loss_backward(const RouterLossBackward& args) { HWY_DYNAMIC_DISPATCH(router_loss_backward)(args); }
}  // namespace cpu
}  // namespace lamina::ops
#endif
