// Bias and activation are an epilogue of the GEMM, applied to each finished block. The column sums of the gradient
// (dbias) are computed per range of rows, and the ranges are added in order.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/ops/linear/linear_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <vector>

#include "lamina/base/simd-inl.h"
#include "lamina/ops/activation/activation-inl.h"
#include "lamina/ops/kernel_dispatch.h"
#include "lamina/ops/linear/gemm.h"
#include "lamina/ops/linear/linear_kernel.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {
using namespace lamina::HWY_NAMESPACE;  // NOLINT: SIMD helpers of this target

/// Epilogue: writes y and, if defined, z of one block of sums.
template <class T, class Function>
void finish_block(const LinearForward& args, Function /*activation*/, Accumulate<T>* block, int64_t ld,
                  const GemmBlock& at) {
  using A = Accumulate<T>;
  const ComputeTag<T> d;
  const int64_t out = args.y.dim(1);
  const A* bias = args.bias.defined() ? args.bias.data<A>() + at.column : nullptr;
  for (int64_t i = 0; i < at.rows; ++i) {
    const A* row = block + i * ld;
    T* y = args.y.data<T>() + (at.row + i) * out + at.column;
    T* z = args.z.defined() ? args.z.data<T>() + (at.row + i) * out + at.column : nullptr;
    for_vectors(d, at.columns, [&](int64_t j, size_t count) HWY_ATTR {
      auto value = load_n(d, row + j, count);
      if (bias != nullptr) value = hn::Add(value, load_n(d, bias + j, count));
      if (z != nullptr) store_n(d, value, z + j, count);
      store_n(d, Function::value(d, value), y + j, count);
    });
  }
}

/// A weight whose rows or columns are contiguous, as a GEMM operand.
GemmOperand operand(const Tensor& weight, bool transpose) {
  const Shape& strides = weight.strides();
  if (strides[1] == 1) return {weight.raw(), weight.dtype(), strides[0], transpose};
  return {weight.raw(), weight.dtype(), strides[1], !transpose};
}

template <class T>
void forward(const LinearForward& args) {
  using A = Accumulate<T>;
  const int64_t in = args.x.dim(1);
  const int64_t out = args.y.dim(1);
  FusedGemm<A> p;
  p.m = args.x.dim(0);
  p.n = out;
  p.k = in;
  p.a = {args.x.raw(), args.x.dtype(), in, false};
  p.b = operand(args.weight, true);
  p.kernel = product_kernel(args.x.device(), args.x.dtype());
  const Threads& threads = args.x.device().threads();
  if (args.activation == Activation::none && !args.bias.defined()) {
    gemm_to(threads, p, args.y.raw(), args.y.dtype(), out);
    return;
  }
  if constexpr (std::is_same_v<T, A>) {
    p.c = args.y.data<T>();
    p.ldc = out;
  }
  visit_activation(args.activation, [&](auto kind) {
    const auto finish = [&](A* block, int64_t ld, const GemmBlock& at) { finish_block<T>(args, kind, block, ld, at); };
    FusedGemm<A> finished = p;
    finished.finish = finish;
    gemm(threads, finished);
  });
}

/// Computes dz, in type Z, of rows [begin, end), and adds them up by column in `sums`.
template <class T, class Z, class Function>
void backward_rows(const LinearActivationBackward& args, Function /*activation*/, int64_t begin, int64_t end,
                   Accumulate<T>* sums) {
  const ComputeTag<T> d;
  const int64_t out = args.dy.dim(1);
  for (int64_t i = begin; i < end; ++i) {
    const T* dy = args.dy.data<T>() + i * out;
    const T* z = args.z.defined() ? args.z.data<T>() + i * out : nullptr;
    Z* dz = args.dz.defined() ? args.dz.data<Z>() + i * out : nullptr;
    for_vectors(d, out, [&](int64_t j, size_t count) HWY_ATTR {
      auto value = load_n(d, dy + j, count);
      if (z != nullptr && dz != nullptr) {
        value = hn::Mul(value, Function::both(d, load_n(d, z + j, count)).slope);
        store_n(d, value, dz + j, count);
      }
      if (sums != nullptr) store_n(d, hn::Add(load_n(d, sums + j, count), value), sums + j, count);
    });
  }
}

template <class T>
void activation_backward(const LinearActivationBackward& args) {
  using A = Accumulate<T>;
  const int64_t rows = args.dy.dim(0);
  const int64_t out = args.dy.dim(1);
  // At most 64 partial sums, whatever the number of rows.
  const int64_t grain = std::max(rows_per_range(out), (rows + 63) / 64);
  const int64_t ranges = rows == 0 ? 0 : (rows + grain - 1) / grain;
  const bool sum = args.dbias.defined();
  std::vector<A> partial(sum ? static_cast<size_t>(ranges * out) : 0, A{0});
  visit_activation(args.activation, [&](auto kind) {
    args.dy.device().threads().ranges(rows, grain, [&](int64_t begin, int64_t end) {
      A* sums = sum ? partial.data() + begin / grain * out : nullptr;
      if (args.dz.defined() && args.dz.dtype() == dtype_of<T>()) {
        backward_rows<T, T>(args, kind, begin, end, sums);
      } else {
        backward_rows<T, A>(args, kind, begin, end, sums);
      }
    });
  });
  if (!sum) return;
  A* dbias = args.dbias.data<A>();
  args.dy.device().threads().ranges(out, 64, [&](int64_t begin, int64_t end) {
    std::fill(dbias + begin, dbias + end, A{0});
    for (int64_t range = 0; range < ranges; ++range) {
      for (int64_t j = begin; j < end; ++j) dbias[j] += partial[static_cast<size_t>(range * out + j)];
    }
  });
}

template <class A>
void backward(const LinearBackward& args) {
  const int64_t rows = args.x.dim(0);
  const int64_t in = args.x.dim(1);
  const int64_t out = args.weight.dim(0);
  const Threads& threads = args.x.device().threads();
  FusedGemm<A> p;
  p.n = in;
  p.a = {args.dz.raw(), args.dz.dtype(), out, false};
  p.kernel = product_kernel(args.x.device(), args.x.dtype());
  if (args.dx.defined()) {
    p.m = rows;
    p.k = out;
    p.b = operand(args.weight, false);
    gemm_to(threads, p, args.dx.raw(), args.dx.dtype(), in);
  }
  if (args.dweight.defined()) {
    p.m = out;
    p.k = rows;
    p.a.transpose = true;
    p.b = {args.x.raw(), args.x.dtype(), in, false};
    p.beta = args.accumulate ? A{1} : A{0};
    gemm_to(threads, p, args.dweight.raw(), args.dweight.dtype(), in);
  }
}

void linear_forward(const LinearForward& args) {
  visit_floating(args.x.dtype(), [&](auto tag) { forward<typename decltype(tag)::type>(args); });
}
void linear_activation_backward(const LinearActivationBackward& args) {
  visit_floating(args.dy.dtype(), [&](auto tag) { activation_backward<typename decltype(tag)::type>(args); });
}
void linear_backward(const LinearBackward& args) {
  args.x.dtype() == DType::f64 ? backward<double>(args) : backward<float>(args);
}

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lamina::ops {
HWY_EXPORT(linear_forward);
HWY_EXPORT(linear_activation_backward);
HWY_EXPORT(linear_backward);

namespace cpu {
void linear_forward(const LinearForward& args) {
  require_kernel(args.x.device(), "linear", "cpu");
  HWY_DYNAMIC_DISPATCH(linear_forward)(args);
}
void linear_activation_backward(const LinearActivationBackward& args) {
  HWY_DYNAMIC_DISPATCH(linear_activation_backward)(args);
}
void linear_backward(const LinearBackward& args) { HWY_DYNAMIC_DISPATCH(linear_backward)(args); }
}  // namespace cpu
}  // namespace lamina::ops
#endif
