// Rows are shared out over the threads; a row's logits are converted into a buffer that stays in cache. The fused form
// multiplies a chunk of rows, turns its logits into their gradient where they lie, and multiplies on.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/ops/loss/cross_entropy_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <vector>

#include "lamina/ops/linear/gemm.h"
#include "lamina/ops/loss/cross_entropy.h"
#include "lamina/ops/loss/cross_entropy_checks.h"
#include "lamina/ops/loss/cross_entropy_row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {

/// What one position's loss is multiplied by in the result.
template <class A>
A share_of(const CrossEntropyOptions& options, int64_t count) {
  if (count == 0) return A{0};
  return options.reduction == Reduction::mean ? A{1} / static_cast<A>(count) : A{1};
}

/// Gradient arriving at row i: a number for all of them, one each, or 1.
template <class A>
A arriving(const CrossEntropyOptions& options, const Tensor& grad, int64_t i) {
  if (!grad.defined()) return A{1};
  return grad.data<A>()[options.reduction == Reduction::none ? i : 0];
}

template <class A>
void add_losses(const CrossEntropyOptions& options, const Tensor& losses, int64_t count, const Tensor& loss) {
  if (!loss.defined()) return;
  double sum = 0;
  for (int64_t i = 0; i < losses.numel(); ++i) sum += static_cast<double>(losses.data<A>()[i]);
  loss.data<A>()[0] =
      count == 0 ? A{0} : static_cast<A>(options.reduction == Reduction::mean ? sum / static_cast<double>(count) : sum);
}

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
      args.losses.data<A>()[i] = row_loss(args.options, u.data(), n, targets[i], sums);
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

/// Rows [first, first + count) of the product: logits into the chunk.
template <class A>
void chunk_logits(const LinearCrossEntropy& args, int64_t first, int64_t count) {
  const int64_t n = args.weight.dim(0);
  const int64_t width = args.x.dim(1);
  const auto* x = static_cast<const char*>(args.x.raw());
  FusedGemm<A> p;
  p.m = count, p.n = n, p.k = width;
  p.a = {width == 0 ? nullptr : x + first * width * static_cast<int64_t>(size_of(args.x.dtype())), args.x.dtype(),
         width, false};
  p.b = {args.weight.raw(), args.weight.dtype(), width, true};
  p.c = args.chunk.data<A>();
  p.ldc = n;
  const A* bias = args.bias.defined() ? args.bias.data<A>() : nullptr;
  const auto add_bias = [&](A* block, int64_t ld, const GemmBlock& at) HWY_ATTR {
    const hn::ScalableTag<A> d;
    for (int64_t i = 0; i < at.rows; ++i) {
      A* row = block + i * ld;
      for_vectors(d, at.columns, [&](int64_t j, size_t lanes) HWY_ATTR {
        store_n(d, hn::Add(load_n(d, row + j, lanes), load_n(d, bias + at.column + j, lanes)), row + j, lanes);
      });
    }
  };
  if (bias != nullptr) p.finish = add_bias;
  gemm(args.x.device().threads(), p);
}

/// Losses of a chunk and, where wanted, its logits turned into their gradient.
template <class A>
void chunk_rows(const LinearCrossEntropy& args, int64_t first, int64_t count, A share, bool gradients) {
  const int64_t n = args.weight.dim(0);
  const CrossEntropyOptions& options = args.options;
  args.x.device().threads().ranges(count, rows_per_range(n), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      A* u = args.chunk.data<A>() + i * n;
      const int64_t target = args.targets.data<int64_t>()[first + i];
      A& loss = args.losses.data<A>()[first + i];
      loss = 0;
      if (target == options.ignore_index) {
        if (gradients) std::fill(u, u + n, A{0});
        continue;
      }
      if (changes_logits(options)) transform_row(options, u, n, u);
      const RowSums<A> sums = sum_row(u, n, options.label_smoothing != 0.0);
      loss = row_loss(options, u, n, target, sums);
      if (gradients) {
        row_gradient<A>(options, u, n, target, sums.lse, share * arriving<A>(options, args.grad, first + i), u);
      }
    }
  });
}

/// dx of the chunk's rows, and its part of dweight and dbias.
template <class A>
void chunk_gradients(const LinearCrossEntropy& args, int64_t first, int64_t count) {
  const int64_t n = args.weight.dim(0);
  const int64_t width = args.x.dim(1);
  const Threads& threads = args.x.device().threads();
  const int64_t offset = first * width * static_cast<int64_t>(size_of(args.x.dtype()));
  FusedGemm<A> p;
  p.n = width;
  p.a = {args.chunk.raw(), dtype_of<A>(), n, false};
  if (args.dx.defined() && width > 0) {
    p.m = count, p.k = n;
    p.b = {args.weight.raw(), args.weight.dtype(), width, false};
    gemm_to(threads, p, static_cast<char*>(args.dx.raw()) + offset, args.dx.dtype(), width);
  }
  if (args.dweight.defined() && width > 0) {
    p.m = n, p.k = count;
    p.a.transpose = true;
    p.b = {static_cast<const char*>(args.x.raw()) + offset, args.x.dtype(), width, false};
    p.beta = first == 0 ? A{0} : A{1};
    gemm_to(threads, p, args.dweight.raw(), args.dweight.dtype(), width);
  }
  if (!args.dbias.defined()) return;
  threads.ranges(n, 1024, [&](int64_t begin, int64_t end) HWY_ATTR {
    const hn::ScalableTag<A> d;
    A* sums = args.dbias.data<A>();
    if (first == 0) std::fill(sums + begin, sums + end, A{0});
    for (int64_t i = 0; i < count; ++i) {
      const A* row = args.chunk.data<A>() + i * n;
      for_vectors(d, end - begin, [&](int64_t j, size_t lanes) HWY_ATTR {
        A* at = sums + begin + j;
        store_n(d, hn::Add(load_n(d, at, lanes), load_n(d, row + begin + j, lanes)), at, lanes);
      });
    }
  });
}

template <class A>
void fused(const LinearCrossEntropy& args) {
  const int64_t rows = args.x.dim(0);
  const int64_t step = args.chunk.dim(0);
  const int64_t count = count_targets("linear_cross_entropy", args.targets.data<int64_t>(), rows, args.weight.dim(0),
                                      args.options.ignore_index);
  const A share = share_of<A>(args.options, count);
  const bool gradients = args.dx.defined() || args.dweight.defined() || args.dbias.defined();
  for (int64_t first = 0; first < rows; first += step) {
    const int64_t here = std::min(step, rows - first);
    chunk_logits<A>(args, first, here);
    chunk_rows<A>(args, first, here, share, gradients);
    if (gradients) chunk_gradients<A>(args, first, here);
  }
  add_losses<A>(args.options, args.losses, count, args.loss);
  if (rows > 0) return;
  for (const Tensor& grad : {args.dweight, args.dbias}) {
    if (grad.defined()) std::fill_n(grad.data<A>(), grad.numel(), A{0});
  }
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
void linear_cross_entropy(const LinearCrossEntropy& args) {
  args.x.dtype() == DType::f64 ? fused<double>(args) : fused<float>(args);
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
HWY_EXPORT(linear_cross_entropy);
HWY_EXPORT(scale_by_tensor);

namespace cpu {
void cross_entropy_forward(const CrossEntropyForward& args) { HWY_DYNAMIC_DISPATCH(cross_entropy_forward)(args); }
void cross_entropy_backward(const CrossEntropyBackward& args) { HWY_DYNAMIC_DISPATCH(cross_entropy_backward)(args); }
void linear_cross_entropy(const LinearCrossEntropy& args) { HWY_DYNAMIC_DISPATCH(linear_cross_entropy)(args); }
void scale_by_tensor(const ScaleByTensor& args) { HWY_DYNAMIC_DISPATCH(scale_by_tensor)(args); }
}  // namespace cpu
}  // namespace lamina::ops
#endif
