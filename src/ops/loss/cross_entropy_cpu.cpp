// Rows are divided among the threads. A row's logits are converted into a buffer that stays in cache for all passes.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/ops/loss/cross_entropy_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <vector>

#include "lamina/ops/loss/cross_entropy_checks.h"
#include "lamina/ops/loss/cross_entropy_kernel.h"
#include "lamina/ops/loss/cross_entropy_row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {

template <class T>
void forward(const CrossEntropyForward& args) {
  using A = Accumulate<T>;
  const int64_t rows = args.logits.dim(0);
  const int64_t n = args.logits.dim(1);
  const int64_t* targets = args.targets.data<int64_t>();
  const int64_t count = count_targets("cross_entropy", targets, rows, n, args.options.ignore_index);
  const bool smooth = args.options.label_smoothing != 0.0;
  args.logits.device().threads().ranges(rows, rows_per_range(n), [&](int64_t begin, int64_t end) {
    std::vector<A> u(static_cast<size_t>(n));
    for (int64_t i = begin; i < end; ++i) {
      args.losses.data<A>()[i] = 0;
      args.lse.data<A>()[i] = 0;
      if (targets[i] == args.options.ignore_index) continue;
      transform_row(args.options, args.logits.data<T>() + i * n, n, u.data());
      const RowSums<A> sums = sum_row(u.data(), n, smooth);
      args.lse.data<A>()[i] = sums.lse;
      args.losses.data<A>()[i] = row_loss(args.options, u[static_cast<size_t>(targets[i])], n, sums);
    }
  });
  add_losses<A>(args.options, args.losses, count, args.loss);
}

template <class T>
void backward(const CrossEntropyBackward& args) {
  using A = Accumulate<T>;
  const int64_t rows = args.logits.dim(0);
  const int64_t n = args.logits.dim(1);
  const int64_t* targets = args.targets.data<int64_t>();
  const int64_t count = count_targets("cross_entropy", targets, rows, n, args.options.ignore_index);
  const A share = share_of<A>(args.options, count);
  args.logits.device().threads().ranges(rows, rows_per_range(n), [&](int64_t begin, int64_t end) {
    std::vector<A> u(static_cast<size_t>(n));
    for (int64_t i = begin; i < end; ++i) {
      T* out = args.dlogits.data<T>() + i * n;
      if (targets[i] == args.options.ignore_index) {
        std::fill(out, out + n, T(0.0F));
        continue;
      }
      transform_row(args.options, args.logits.data<T>() + i * n, n, u.data());
      row_gradient<T>(args.options, u.data(), n, targets[i], args.lse.data<A>()[i],
                      share * arriving<A>(args.options, args.grad, i), out);
    }
  });
}

template <class T>
void scale_values(const ScaleByTensor& args) {
  using A = Accumulate<T>;
  const A factor = args.factor.data<A>()[0];
  if (factor == A{1}) return;
  T* values = args.values.data<T>();
  args.values.device().threads().ranges(args.values.numel(), 16384, [&](int64_t begin, int64_t end) HWY_ATTR {
    const ComputeTag<T> d;
    for_vectors(d, end - begin, [&](int64_t i, size_t count) HWY_ATTR {
      T* at = values + begin + i;
      store_n(d, hn::Mul(load_n(d, at, count), hn::Set(d, factor)), at, count);
    });
  });
}

void cross_entropy_forward(const CrossEntropyForward& args) {
  visit_floating(args.logits.dtype(), [&](auto tag) { forward<typename decltype(tag)::type>(args); });
}
void cross_entropy_backward(const CrossEntropyBackward& args) {
  visit_floating(args.logits.dtype(), [&](auto tag) { backward<typename decltype(tag)::type>(args); });
}
void scale_by_tensor(const ScaleByTensor& args) {
  visit_floating(args.values.dtype(), [&](auto tag) { scale_values<typename decltype(tag)::type>(args); });
}

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lamina::ops {
HWY_EXPORT(cross_entropy_forward);
HWY_EXPORT(cross_entropy_backward);
HWY_EXPORT(scale_by_tensor);

namespace cpu {
void cross_entropy_forward(const CrossEntropyForward& args) { HWY_DYNAMIC_DISPATCH(cross_entropy_forward)(args); }
void cross_entropy_backward(const CrossEntropyBackward& args) { HWY_DYNAMIC_DISPATCH(cross_entropy_backward)(args); }
void scale_by_tensor(const ScaleByTensor& args) { HWY_DYNAMIC_DISPATCH(scale_by_tensor)(args); }
}  // namespace cpu
}  // namespace lamina::ops
#endif
