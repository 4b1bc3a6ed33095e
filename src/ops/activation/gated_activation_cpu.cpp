// One pass over the rows, which are divided among the threads. Each step loads a vector of gates and a vector of ups
// and writes one vector (forward) or two (backward). The interleaved layout is split and merged in registers.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/ops/activation/gated_activation_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lamina/base/simd_stream-inl.h"
#include "lamina/ops/activation/gated_activation_kernel.h"
#include "lamina/ops/activation/gated_unit-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {
using namespace lamina::HWY_NAMESPACE;  // NOLINT: SIMD helpers of this target

/// Loads `count` gates and ups of a row of 2·n elements, starting with unit i.
template <class D, class T>
HWY_INLINE GateUp<hn::Vec<D>> load_pair(D d, const T* row, int64_t n, int64_t i, size_t count, bool interleaved) {
  if (!interleaved) return {load_n(d, row + i, count), load_n(d, row + n + i, count)};
  const size_t lanes = hn::Lanes(d);
  const size_t first = std::min(lanes, 2 * count);
  const auto a = load_n(d, row + 2 * i, first);
  const auto b = 2 * count > lanes ? load_n(d, row + 2 * i + lanes, 2 * count - first) : hn::Zero(d);
  return {hn::ConcatEven(d, b, a), hn::ConcatOdd(d, b, a)};
}

template <class D, class T>
HWY_INLINE void store_pair(D d, GateUp<hn::Vec<D>> value, T* row, int64_t n, int64_t i, size_t count, bool interleaved,
                           bool streaming) {
  if (!interleaved) {
    put_n(d, value.gate, row + i, count, streaming);
    put_n(d, value.up, row + n + i, count, streaming);
    return;
  }
  HWY_ALIGN hn::TFromD<D> joined[2 * hn::MaxLanes(d)];
  hn::StoreInterleaved2(value.gate, value.up, d, joined);
  const size_t lanes = hn::Lanes(d);
  const size_t first = std::min(lanes, 2 * count);
  put_n(d, hn::Load(d, joined), row + 2 * i, first, streaming);
  if (2 * count > lanes) put_n(d, hn::Load(d, joined + lanes), row + 2 * i + lanes, 2 * count - first, streaming);
}

template <class T, class Function>
void forward(const Tensor& x_in, const GateOptions& options, const Tensor& out_in) {
  const int64_t n = out_in.dim(-1);
  const int64_t rows = n == 0 ? 0 : out_in.numel() / n;
  const T* x = x_in.data<T>();
  T* out = out_in.data<T>();
  const bool interleaved = options.interleaved;
  const bool streaming = should_stream(out, rows * n, n);
  out_in.device().threads().ranges(rows, rows_per_range(n), [&](int64_t begin, int64_t end) HWY_ATTR {
    const ComputeTag<T> d;
    const GatedUnit<ComputeTag<T>, Function> unit(options);
    for (int64_t row = begin; row < end; ++row) {
      for_vectors(d, n, [&](int64_t i, size_t count) HWY_ATTR {
        const auto in = load_pair(d, x + row * 2 * n, n, i, count, interleaved);
        put_n(d, unit.forward(in), out + row * n + i, count, streaming);
      });
    }
    if (streaming) hwy::FlushStream();
  });
}

template <class T, class Function>
void backward(const Tensor& x_in, const Tensor& dout_in, const GateOptions& options, const Tensor& dx_in) {
  const int64_t n = dout_in.dim(-1);
  const int64_t rows = n == 0 ? 0 : dout_in.numel() / n;
  const T* x = x_in.data<T>();
  const T* dout = dout_in.data<T>();
  T* dx = dx_in.data<T>();
  const bool interleaved = options.interleaved;
  const bool streaming = should_stream(dx, 2 * rows * n, n);
  dx_in.device().threads().ranges(rows, rows_per_range(2 * n), [&](int64_t begin, int64_t end) HWY_ATTR {
    const ComputeTag<T> d;
    const GatedUnit<ComputeTag<T>, Function> unit(options);
    for (int64_t row = begin; row < end; ++row) {
      const int64_t at = row * 2 * n;
      for_vectors(d, n, [&](int64_t i, size_t count) HWY_ATTR {
        const auto in = load_pair(d, x + at, n, i, count, interleaved);
        const auto grad = unit.backward(in, load_n(d, dout + row * n + i, count));
        store_pair(d, grad, dx + at, n, i, count, interleaved, streaming);
      });
    }
    if (streaming) hwy::FlushStream();
  });
}

void gated_activation_forward(const Tensor& x, Gate gate, const GateOptions& options, const Tensor& out) {
  visit_floating(x.dtype(), [&](auto type) {
    visit_gate(gate, [&](auto f) { forward<typename decltype(type)::type, decltype(f)>(x, options, out); });
  });
}
void gated_activation_backward(const Tensor& x, const Tensor& dout, Gate gate, const GateOptions& options,
                               const Tensor& dx) {
  visit_floating(x.dtype(), [&](auto type) {
    visit_gate(gate, [&](auto f) { backward<typename decltype(type)::type, decltype(f)>(x, dout, options, dx); });
  });
}

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lamina::ops {
HWY_EXPORT(gated_activation_forward);
HWY_EXPORT(gated_activation_backward);

namespace cpu {
void gated_activation_forward(const Tensor& x, Gate gate, const GateOptions& options, const Tensor& out) {
  HWY_DYNAMIC_DISPATCH(gated_activation_forward)(x, gate, options, out);
}
void gated_activation_backward(const Tensor& x, const Tensor& dout, Gate gate, const GateOptions& options,
                               const Tensor& dx) {
  HWY_DYNAMIC_DISPATCH(gated_activation_backward)(x, dout, gate, options, dx);
}
}  // namespace cpu
}  // namespace lamina::ops
#endif
